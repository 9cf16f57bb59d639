// Key/value pairs of a GGUF header: u64 key length, key, u32 type, value. An array is u32 element
// type, u64 count, elements.
#include <array>

#include "formats/gguf_part.h"
#include "formats/tensor_table.h"

namespace pagefold {
namespace {

enum ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Smallest number of bytes a value takes, by type; a string is at least its length.
constexpr std::array<uint8_t, 13> kMinBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

// Widening makes small elements bigger in memory than in the file (8x for bytes, 4x for empty
// strings): the cap bounds that. The largest vocabularies need about 1.5 million in all.
constexpr uint64_t kMaxArrayElements = uint64_t{1} << 22;
constexpr size_t kMaxKeyBytes = 65535;  // the format's own limit

Status file_ends() { return bad_data("the file ends inside the value"); }

template <class Stored, class Wide>
Status read_numbers(ByteCursor& in, uint64_t count, std::vector<Wide>& out) {
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    Stored value{};
    if (!in.read(value)) return file_ends();
    out.push_back(static_cast<Wide>(value));
  }
  return ok_status();
}

template <class Stored, class Wide>
Status read_scalar(ByteCursor& in, GgufValue& out) {
  Stored value{};
  if (!in.read(value)) return file_ends();
  out = static_cast<Wide>(value);
  return ok_status();
}

template <class Stored, class Wide>
Status read_array_of(ByteCursor& in, uint64_t count, GgufValue& out) {
  return read_numbers<Stored>(in, count, out.emplace<std::vector<Wide>>());
}

Result<bool> read_bool(ByteCursor& in) {
  uint8_t byte = 0;
  if (!in.read(byte)) return file_ends();
  if (byte > 1) return bad_data("a bool of value {}, only 0 and 1 are allowed", byte);
  return byte == 1;
}

Status read_bools(ByteCursor& in, uint64_t count, std::vector<bool>& out) {
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    PF_ASSIGN(const bool value, read_bool(in));
    out.push_back(value);
  }
  return ok_status();
}

Status read_strings(ByteCursor& in, uint64_t count, std::vector<std::string>& out) {
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    std::string_view text;
    if (Status s = in.read_string(text); !s.ok()) {
      return with_context(s, fmt::format("element {}", i));
    }
    out.emplace_back(text);
  }
  return ok_status();
}

Status read_array(ByteCursor& in, uint64_t& budget, GgufValue& out) {
  uint32_t type = 0;
  uint64_t count = 0;
  if (!in.read(type) || !in.read(count)) return file_ends();
  if (type == kArray) return unsupported("an array of arrays is not supported");
  if (type >= kMinBytes.size()) return bad_data("array element type {} is unknown", type);
  if (count > in.left() / kMinBytes[type]) {
    return bad_data("an array of {} elements, but the file has only {} more bytes", count,
                    in.left());
  }
  if (count > budget) {
    return unsupported("the arrays of the metadata have more than {} elements in all",
                       kMaxArrayElements);
  }
  budget -= count;
  switch (type) {
    case kU8:
      return read_array_of<uint8_t, uint64_t>(in, count, out);
    case kI8:
      return read_array_of<int8_t, int64_t>(in, count, out);
    case kU16:
      return read_array_of<uint16_t, uint64_t>(in, count, out);
    case kI16:
      return read_array_of<int16_t, int64_t>(in, count, out);
    case kU32:
      return read_array_of<uint32_t, uint64_t>(in, count, out);
    case kI32:
      return read_array_of<int32_t, int64_t>(in, count, out);
    case kF32:
      return read_array_of<float, double>(in, count, out);
    case kBool:
      return read_bools(in, count, out.emplace<std::vector<bool>>());
    case kString:
      return read_strings(in, count, out.emplace<std::vector<std::string>>());
    case kU64:
      return read_array_of<uint64_t, uint64_t>(in, count, out);
    case kI64:
      return read_array_of<int64_t, int64_t>(in, count, out);
    default:
      return read_array_of<double, double>(in, count, out);
  }
}

Status read_value(ByteCursor& in, uint64_t& budget, GgufValue& out) {
  uint32_t type = 0;
  if (!in.read(type)) return bad_data("the file ends before the value's type");
  switch (type) {
    case kU8:
      return read_scalar<uint8_t, uint64_t>(in, out);
    case kI8:
      return read_scalar<int8_t, int64_t>(in, out);
    case kU16:
      return read_scalar<uint16_t, uint64_t>(in, out);
    case kI16:
      return read_scalar<int16_t, int64_t>(in, out);
    case kU32:
      return read_scalar<uint32_t, uint64_t>(in, out);
    case kI32:
      return read_scalar<int32_t, int64_t>(in, out);
    case kF32:
      return read_scalar<float, double>(in, out);
    case kU64:
      return read_scalar<uint64_t, uint64_t>(in, out);
    case kI64:
      return read_scalar<int64_t, int64_t>(in, out);
    case kF64:
      return read_scalar<double, double>(in, out);
    case kArray:
      return read_array(in, budget, out);
    case kBool: {
      PF_ASSIGN(out, read_bool(in));
      return ok_status();
    }
    case kString: {
      std::string_view text;
      PF_TRY(in.read_string(text));
      out = std::string(text);
      return ok_status();
    }
    default:
      return bad_data("value type {} is unknown", type);
  }
}

}  // namespace

Status read_gguf_metadata(ByteCursor& in, uint64_t count, GgufMetadata& out) {
  uint64_t budget = kMaxArrayElements;
  for (uint64_t i = 0; i < count; ++i) {
    std::string_view key;
    if (Status s = in.read_string(key); !s.ok()) {
      return with_context(s, fmt::format("name of metadata key {}", i));
    }
    if (key.empty() || key.size() > kMaxKeyBytes) {
      return bad_data("metadata key {} has a name of {} bytes, 1 to {} are allowed", i, key.size(),
                      kMaxKeyBytes);
    }
    const auto [it, fresh] = out.try_emplace(std::string(key));
    if (!fresh) return bad_data("metadata key {} occurs twice", quote_name(key));
    if (Status s = read_value(in, budget, it->second); !s.ok()) {
      return with_context(s, fmt::format("metadata key {}", quote_name(key)));
    }
  }
  return ok_status();
}

Result<int64_t> metadata_count(const GgufMetadata& metadata, std::string_view key,
                               int64_t fallback) {
  const auto it = metadata.find(key);
  if (it == metadata.end()) return fallback;
  if (const auto* u = std::get_if<uint64_t>(&it->second); u && *u <= INT64_MAX) {
    return static_cast<int64_t>(*u);
  }
  if (const auto* i = std::get_if<int64_t>(&it->second); i && *i >= 0) return *i;
  return bad_data("metadata key {}: expected a count, got {}", quote_name(key),
                  to_display(it->second));
}

}  // namespace pagefold
