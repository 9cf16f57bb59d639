// One GGUF file's header, parsed: what GgufFile joins together. Private to src/formats.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "formats/byte_cursor.h"
#include "formats/gguf.h"

namespace pagefold {

using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

struct GgufPart {
  uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<TensorInfo> tensors;
};

// Errors name the file. Tensor data spans point into `bytes`.
Result<GgufPart> parse_gguf_part(std::span<const std::byte> bytes, const std::string& name);

// Reads `count` key/value pairs. Errors name the key, not the file. (gguf_metadata.cpp)
Status read_gguf_metadata(ByteCursor& in, uint64_t count, GgufMetadata& out);

// An integer of the metadata in [0, 2^63): absent -> fallback. Errors name the key.
Result<int64_t> metadata_count(const GgufMetadata& metadata, std::string_view key,
                               int64_t fallback);

}  // namespace pagefold
