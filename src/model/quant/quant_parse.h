// The parsers of each method's config object. Private to src/model/quant.
#pragma once

#include "model/quant/quant_config.h"

namespace pagefold {

Result<QuantConfig> parse_awq_config(const Json& object, std::string_view where);
Result<QuantConfig> parse_gptq_config(const Json& object, std::string_view where);
Result<QuantConfig> parse_compressed_tensors_config(const Json& object, std::string_view where);
Result<QuantConfig> parse_fp8_config(const Json& object, std::string_view where);
Result<QuantConfig> parse_bitsandbytes_config(const Json& object, std::string_view where);

// A list of names or patterns under `key`; absent: empty.
Result<std::vector<ModuleMatcher>> parse_modules(const Json& object, std::string_view key,
                                                 std::string_view where,
                                                 const std::shared_ptr<PatternWork>& work);

}  // namespace pagefold
