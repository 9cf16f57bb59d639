#include "formats/quant/bitsandbytes.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/json.h"
#include "formats/quant/plain_values.h"

namespace pagefold {
namespace {

Result<int64_t> block_field(const Json& state, const char* key) {
  const auto it = state.find(key);
  if (it == state.end()) return bad_data("field '{}' is missing", key);
  if (!it->is_number_integer()) return bad_data("field '{}' is no integer", key);
  const auto value = it->get<int64_t>();
  if (value < 1 || value > (1 << 20) || !std::has_single_bit(static_cast<uint64_t>(value)))
    return bad_data("'{}' is {}, expected a power of two", key, value);
  return value;
}

Status read_shape(const Json& state, std::vector<int64_t>& shape) {
  const auto it = state.find("shape");
  if (it == state.end() || !it->is_array() || it->size() > 8)
    return bad_data("'shape' must be a list of dims");
  for (const Json& dim : *it) {
    const bool whole = dim.is_number_integer() && dim >= 0 && dim <= (int64_t{1} << 40);
    if (!whole) return bad_data("'shape' must be a list of dims");
    shape.push_back(dim.get<int64_t>());
  }
  return ok_status();
}

}  // namespace

Result<Bnb4State> parse_bnb4_state(std::span<const std::byte> bytes) {
  if (bytes.size() > 65536) return bad_data("{} bytes of quant_state", bytes.size());
  PF_ASSIGN(const Json state,
            parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  if (!state.is_object()) return bad_data("quant_state is no JSON object");
  Bnb4State s;
  const auto type = state.find("quant_type");
  s.quant_type = type != state.end() && type->is_string() ? type->get<std::string>() : "";
  if (s.quant_type != "nf4" && s.quant_type != "fp4")
    return unsupported("quant_type '{}' is not supported; known: nf4, fp4", s.quant_type);
  PF_ASSIGN(s.blocksize, block_field(state, "blocksize"));
  PF_TRY(read_shape(state, s.shape));
  const auto offset = state.find("nested_offset");
  s.nested = state.contains("nested_blocksize") || offset != state.end();
  if (!s.nested) return s;
  PF_ASSIGN(s.nested_blocksize, block_field(state, "nested_blocksize"));
  if (offset == state.end() || !offset->is_number())
    return bad_data("'nested_offset' must be a number");
  s.nested_offset = offset->get<float>();
  if (!(std::abs(s.nested_offset) <= kMostScale))
    return bad_data("'nested_offset' is {}, expected at most {}", s.nested_offset, kMostScale);
  return s;
}

void bnb4_codes(const std::byte* weight, int64_t first, int64_t n, int8_t* code) {
  for (int64_t i = first; i < first + n; ++i) {
    const auto byte = std::to_integer<unsigned>(weight[i / 2]);
    *code++ = static_cast<int8_t>(i % 2 == 0 ? byte >> 4 : byte & 15);
  }
}

void bnb4_nested_absmax(const NestedAbsmax& a, int64_t first, int64_t n, float* absmax) {
  for (int64_t b = first; b < first + n; ++b) {
    const auto code = std::to_integer<int64_t>(a.codes[b]);
    const float product = plain_value(TensorType::F32, a.map, code) *
                          plain_value(TensorType::F32, a.nested_absmax, b / a.blocksize);
    *absmax++ = product + a.offset;
  }
}

const std::array<float, 16>& nf4_table() {
  static constexpr std::array<uint32_t, 16> kBits = {
      0xbf800000, 0xbf3239b1, 0xbf066b30, 0xbeca32a0, 0xbe91a24d, 0xbe3d353f,
      0xbdba7871, 0x00000000, 0x3da2faff, 0x3e24cae3, 0x3e7c04dd, 0x3ead033a,
      0x3ee1a4b8, 0x3f1007ab, 0x3f3913b3, 0x3f800000};
  static constexpr std::array<float, 16> kTable = std::bit_cast<std::array<float, 16>>(kBits);
  return kTable;
}

const std::array<float, 16>& fp4_table() {
  static constexpr std::array<float, 16> kTable = {
      0.0f,  1.0f / 192,  2.0f / 3,  1.0f,  1.0f / 3,  0.5f,  1.0f / 6,  0.25f,
      -0.0f, -1.0f / 192, -2.0f / 3, -1.0f, -1.0f / 3, -0.5f, -1.0f / 6, -0.25f};
  return kTable;
}

int nf4_code(float x) {
  const auto& table = nf4_table();
  int code = 0;
  while (code < 15 &&
         x > (table[static_cast<size_t>(code)] + table[static_cast<size_t>(code) + 1]) / 2)
    ++code;
  return code;
}

}  // namespace pagefold
