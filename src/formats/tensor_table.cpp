#include "formats/tensor_table.h"

#include <array>
#include <limits>

#include "base/check.h"

namespace pagefold {
namespace {

// In the order of TensorType.
constexpr std::array<TensorTypeInfo, 21> kTypes = {{
    {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},     {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},   {"Q8_0", 32, 34},
    {"Q2_K", 256, 84},  {"Q3_K", 256, 110}, {"Q4_K", 256, 144}, {"Q5_K", 256, 176},
    {"Q6_K", 256, 210}, {"IQ4_NL", 32, 18}, {"MXFP4", 32, 17},  {"I8", 1, 1},
    {"U8", 1, 1},       {"I32", 1, 4},      {"I64", 1, 8},      {"F8_E4M3", 1, 1},
    {"F8_E5M2", 1, 1},
}};
static_assert(kTypes.size() == static_cast<size_t>(TensorType::F8_E5M2) + 1);

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t dim : shape) text += fmt::format("{}{}", text.size() > 1 ? ", " : "", dim);
  return text + "]";
}

}  // namespace

const TensorTypeInfo& tensor_type_info(TensorType type) {
  PF_CHECK(static_cast<size_t>(type) < kTypes.size());
  return kTypes[static_cast<size_t>(type)];
}

int64_t TensorInfo::elements() const {
  int64_t n = 1;
  for (const int64_t dim : shape) n *= dim;  // the readers checked the product
  return n;
}

Result<uint64_t> checked_tensor_bytes(TensorType type, const std::vector<int64_t>& shape) {
  const TensorTypeInfo& info = tensor_type_info(type);
  // A zero must not hide an overflow of the others: the product over the non-zero dims is checked.
  int64_t elements = 1;
  bool empty = false;
  for (const int64_t dim : shape) {
    if (dim < 0 || (dim > 0 && __builtin_mul_overflow(elements, dim, &elements))) {
      return bad_data("shape {} has more than 2^63 - 1 elements", shape_text(shape));
    }
    empty = empty || dim == 0;
  }
  if (empty) return uint64_t{0};
  const int64_t row = shape.empty() ? 1 : shape.back();
  if (row % info.block_elements != 0) {
    return bad_data("shape {}: rows of {} elements are not whole {} blocks of {}",
                    shape_text(shape), row, info.name, info.block_elements);
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / info.block_elements, int64_t{info.block_bytes}, &bytes)) {
    return bad_data("shape {} has more than 2^63 - 1 bytes", shape_text(shape));
  }
  return static_cast<uint64_t>(bytes);
}

Result<TensorIndex> index_tensors(const std::vector<TensorInfo>& tensors) {
  TensorIndex index;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [it, fresh] = index.emplace(tensors[i].name, i);
    if (fresh) continue;
    const std::string& first = tensors[it->second].file;
    if (first == tensors[i].file) {
      return bad_data("{}: tensor {} occurs twice", first, quote_name(tensors[i].name));
    }
    return bad_data("{}: tensor {} is also in {}", tensors[i].file, quote_name(tensors[i].name),
                    first);
  }
  return index;
}

std::string quote_name(std::string_view name) {
  constexpr size_t kMax = 80;
  std::string out = "'";
  for (const char c : name.substr(0, kMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '\'' || c == '\\') {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (name.size() > kMax ? "...'" : "'");
}

}  // namespace pagefold
