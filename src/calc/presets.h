// Models known by name (presets.def).
#pragma once

#include <string_view>
#include <vector>

#include "calc/layers.h"

namespace pagefold::calc {

const std::vector<Model>& presets();
// Any case, with or without the owner: "qwen3-8b". Null: not known.
const Model* find_preset(std::string_view name);

}  // namespace pagefold::calc
