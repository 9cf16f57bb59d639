#include "kv/kv_options.h"

namespace pagefold {

Status check_kv_options(const KvOptions& options) {
  for (const auto& [key, value] : options) {
    if (key != "policy") {
      return bad_input("kv: unknown key \"{}\"; known keys: policy", key.substr(0, 64));
    }
    if (value != "full") {
      return bad_input("kv.policy: unknown policy \"{}\"; known policies: full",
                       value.substr(0, 64));
    }
  }
  return ok_status();
}

}  // namespace pagefold
