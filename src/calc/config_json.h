// A model's layers from its config.json (Hugging Face).
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "calc/layers.h"

namespace pagefold::calc {

// text_config may be nested; null fields are absent ones; layer_types wins over any pattern.
// Refused by name: an unknown model_type, a missing field, zeros and negatives, numbers that are no
// integers. where: the file, for messages.
Result<Model> model_from_config(const Json& config, std::string_view where);

}  // namespace pagefold::calc
