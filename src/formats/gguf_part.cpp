#include "formats/gguf_part.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "formats/tensor_table.h"

namespace pagefold {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF", read as a little-endian number
// Far above any real model; they bound the memory that a hostile file of small entries can take.
constexpr uint64_t kMaxKeys = uint64_t{1} << 16;
constexpr uint64_t kMaxTensors = uint64_t{1} << 17;
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;             // length, name, type, value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, dims, type, offset
constexpr uint32_t kMaxDims = 4;

struct TypeId {
  uint32_t id;
  TensorType type;
};
constexpr std::array<TypeId, 18> kTypeIds = {{
    {0, TensorType::F32},
    {1, TensorType::F16},
    {2, TensorType::Q4_0},
    {3, TensorType::Q4_1},
    {6, TensorType::Q5_0},
    {7, TensorType::Q5_1},
    {8, TensorType::Q8_0},
    {10, TensorType::Q2_K},
    {11, TensorType::Q3_K},
    {12, TensorType::Q4_K},
    {13, TensorType::Q5_K},
    {14, TensorType::Q6_K},
    {20, TensorType::IQ4_NL},
    {24, TensorType::I8},
    {26, TensorType::I32},
    {27, TensorType::I64},
    {30, TensorType::BF16},
    {39, TensorType::MXFP4},
}};

// Types the format knows and this engine does not: only for the message.
constexpr std::array<std::pair<uint32_t, std::string_view>, 15> kOtherTypes = {{
    {9, "Q8_1"},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {23, "IQ4_XS"},
    {25, "I16"},
    {28, "F64"},
    {29, "IQ1_M"},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {40, "NVFP4"},
}};

Result<TensorType> type_of(uint32_t id) {
  for (const TypeId& known : kTypeIds) {
    if (known.id == id) return known.type;
  }
  for (const auto& [other, name] : kOtherTypes) {
    if (other == id) return unsupported("tensor type {} ({}) is not supported", id, name);
  }
  return unsupported("tensor type {} is unknown", id);
}

struct Header {
  uint32_t version = 0;
  uint64_t tensors = 0;
  uint64_t keys = 0;
};

Result<Header> read_header(ByteCursor& in) {
  uint32_t magic = 0;
  if (!in.read(magic)) return bad_data("not a GGUF file: only {} bytes", in.left());
  if (magic != kMagic) return bad_data("not a GGUF file: the magic is not \"GGUF\"");
  Header header;
  if (!in.read(header.version)) return bad_data("the file ends before its version");
  const uint32_t swapped = __builtin_bswap32(header.version);
  if (header.version > 0xffffu && swapped >= 1 && swapped <= 0xffffu) {
    return unsupported("a big-endian GGUF file (version {}); only little-endian ones are read",
                       swapped);
  }
  if (header.version != 2 && header.version != 3) {
    return unsupported("GGUF version {}; versions 2 and 3 are read", header.version);
  }
  if (!in.read(header.tensors) || !in.read(header.keys)) {
    return bad_data("the file ends inside its tensor and key counts");
  }
  if (header.tensors > in.left() / kMinTensorBytes) {
    return bad_data("tensor count {}, but the file has only {} more bytes", header.tensors,
                    in.left());
  }
  if (header.keys > in.left() / kMinKeyBytes) {
    return bad_data("key count {}, but the file has only {} more bytes", header.keys, in.left());
  }
  if (header.tensors > kMaxTensors || header.keys > kMaxKeys) {
    return unsupported("{} tensors and {} keys; the limits are {} and {}", header.tensors,
                       header.keys, kMaxTensors, kMaxKeys);
  }
  return header;
}

// A row of the tensor table; offset counts from the start of the data.
struct Entry {
  TensorInfo info;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

Status read_entry(ByteCursor& in, Entry& entry) {
  uint32_t n_dims = 0;
  if (!in.read(n_dims)) return bad_data("the file ends before its number of dims");
  if (n_dims < 1 || n_dims > kMaxDims)
    return bad_data("{} dims; 1 to {} are allowed", n_dims, kMaxDims);
  entry.info.shape.resize(n_dims);
  for (uint32_t i = 0; i < n_dims; ++i) {
    uint64_t dim = 0;
    if (!in.read(dim)) return bad_data("the file ends inside its dims");
    if (dim == 0) return bad_data("dim {} is zero", i);
    if (dim > INT64_MAX) return bad_data("dim {} is {}, beyond 2^63 - 1", i, dim);
    entry.info.shape[n_dims - 1 - i] = static_cast<int64_t>(dim);  // the file has the fastest first
  }
  uint32_t id = 0;
  if (!in.read(id)) return bad_data("the file ends before its type");
  if (!in.read(entry.offset)) return bad_data("the file ends before its offset");
  PF_ASSIGN(entry.info.type, type_of(id));
  PF_ASSIGN(entry.bytes, checked_tensor_bytes(entry.info.type, entry.info.shape));
  return ok_status();
}

Result<std::vector<Entry>> read_entries(ByteCursor& in, uint64_t count) {
  std::vector<Entry> entries(count);
  for (uint64_t i = 0; i < count; ++i) {
    std::string_view name;
    if (Status s = in.read_string(name); !s.ok()) {
      return with_context(s, fmt::format("name of tensor {}", i));
    }
    if (name.empty()) return bad_data("tensor {} has an empty name", i);
    entries[i].info.name = name;
    if (Status s = read_entry(in, entries[i]); !s.ok()) {
      return with_context(s, fmt::format("tensor {}", quote_name(name)));
    }
  }
  return entries;
}

// Points every entry at its bytes: aligned, inside the file, no two overlapping.
Status place(std::vector<Entry>& entries, std::span<const std::byte> data, uint64_t alignment) {
  for (Entry& e : entries) {
    if (e.offset % alignment != 0) {
      return bad_data("tensor {}: offset {} is not a multiple of the alignment {}",
                      quote_name(e.info.name), e.offset, alignment);
    }
    if (e.offset > data.size() || e.bytes > data.size() - e.offset) {
      return bad_data("tensor {}: {} bytes at offset {}, but the file's data has {} bytes",
                      quote_name(e.info.name), e.bytes, e.offset, data.size());
    }
    e.info.data = data.subspan(e.offset, e.bytes);
  }
  std::vector<const Entry*> order;
  order.reserve(entries.size());
  for (const Entry& e : entries) order.push_back(&e);
  std::sort(order.begin(), order.end(),
            [](const Entry* a, const Entry* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->offset < order[i - 1]->offset + order[i - 1]->bytes) {
      return bad_data("tensors {} and {} overlap", quote_name(order[i - 1]->info.name),
                      quote_name(order[i]->info.name));
    }
  }
  return ok_status();
}

Result<GgufPart> parse(std::span<const std::byte> bytes) {
  ByteCursor in(bytes);
  PF_ASSIGN(const Header header, read_header(in));
  GgufPart part;
  part.version = header.version;
  PF_TRY(read_gguf_metadata(in, header.keys, part.metadata));
  PF_ASSIGN(const int64_t alignment, metadata_count(part.metadata, "general.alignment", 32));
  if (!std::has_single_bit(static_cast<uint64_t>(alignment))) {
    return bad_data("metadata key 'general.alignment': {} is not a power of two", alignment);
  }
  PF_ASSIGN(std::vector<Entry> entries, read_entries(in, header.tensors));
  const uint64_t padding = (0 - uint64_t{in.position()}) & (static_cast<uint64_t>(alignment) - 1);
  const std::span<const std::byte> data =
      padding > in.left() ? std::span<const std::byte>() : bytes.subspan(in.position() + padding);
  PF_TRY(place(entries, data, static_cast<uint64_t>(alignment)));
  part.tensors.reserve(entries.size());
  for (Entry& e : entries) part.tensors.push_back(std::move(e.info));
  return part;
}

}  // namespace

Result<GgufPart> parse_gguf_part(std::span<const std::byte> bytes, const std::string& name) {
  Result<GgufPart> part = parse(bytes);
  if (!part.ok()) return with_context(part.status(), name);
  for (TensorInfo& tensor : part->tensors) tensor.file = name;
  return part;
}

}  // namespace pagefold
