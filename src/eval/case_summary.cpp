// Rows of the tasks that ask for an answer.
#include "eval/summary.h"

namespace pagefold::eval {

Units case_units(const Run&, const Cell&) { return {}; }
void add_case_figures(const Run&, const Cell&, Json&) {}

}  // namespace pagefold::eval
