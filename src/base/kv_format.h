// How keys and values are stored in the cache: one format for the whole pool. The bytes of a block
// follow from it here and nowhere else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace pagefold {

// Which elements share a scale where nobody says so.
constexpr int kAutoKvGroup = -1;

// kAutoKvGroup becomes 32 for keys of 4 bits (with one scale for a whole head small models repeat
// themselves in long chats) and 0 for all others; any other group stays.
constexpr int kv_group_of(int group, DType keys) {
  if (group != kAutoKvGroup) return group;
  return keys == DType::int4 ? 32 : 0;
}

struct KvFormat {
  DType k = DType::bf16, v = DType::bf16;
  int group = 0;  // elements that share a scale in int8 and int4; 0: the token's whole head
  // Keys and queries are rotated by a block-Hadamard matrix: int4 and fp8 keys.
  bool hadamard_keys = false;
  // What all keys of a head share is taken off before they are stored: all types of 8 bits or less.
  bool centred_keys = false;
  // fp8: value = code * scale, one a layer; empty: 1.
  std::vector<float> k_scale, v_scale;

  KvFormat() = default;
  KvFormat(DType both) : KvFormat(both, both) {}  // NOLINT
  // Without scales of the checkpoint.
  KvFormat(DType keys, DType values, int shared = 0)
      : k(keys),
        v(values),
        group(shared),
        hadamard_keys(keys == DType::int4 || dtype_is_fp8(keys)),
        centred_keys(dtype_bits(keys) <= 8) {}

  // Bytes of one token's key and value of one KV head, scales and zero points included.
  uint64_t slot_bytes(int head_dim) const {
    const auto dim = static_cast<size_t>(head_dim), shared = static_cast<size_t>(group);
    return kv_row_bytes(k, dim, shared) + kv_row_bytes(v, dim, shared);
  }
  uint64_t block_bytes(int head_dim, int block_size) const {
    return slot_bytes(head_dim) * static_cast<uint64_t>(block_size);
  }
  // "int8"; "k int8, v int4"; "int4, groups of 32".
  std::string name() const;
};

// What a checkpoint says of its cache.
struct KvRecipe {
  std::optional<DType> dtype;           // of its kv_cache_scheme
  std::vector<float> k_scale, v_scale;  // [n_layers], empty: it has none
};

// The options --kv-cache-dtype, --kv-cache-dtype-v and --kv-cache-group as they were given.
struct KvTypeWords {
  std::string k = "auto", v = "auto";
  int group = kAutoKvGroup;
};

// auto for keys: the recipe's type, else `automatic`; for values: as the keys. Errors name the
// option and what would be right: unknown words, a group that is not auto, 0 or 32, a group where
// no type has scales.
Result<KvFormat> resolve_kv_format(const KvTypeWords& words, DType automatic,
                                   const KvRecipe& recipe);

// The warning that fp8_e4m3 without scales deserves, or keys of 4 bits with one scale a head; or
// empty.
std::string kv_format_warning(const KvFormat& format);

}  // namespace pagefold
