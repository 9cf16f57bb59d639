// Builds GGUF files in memory for tests: valid ones, and broken ones through the add_raw functions.
//
//   GgufWriter w;
//   w.add("general.architecture", "llama");
//   w.add("llama.block_count", uint32_t{2});
//   w.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
//   w.add_tensor("output.weight", TensorType::F32, {n_out, n_in}, bytes);
//   std::vector<std::byte> file = w.finish();
//
// Independent of src/formats: only the enum TensorType is shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "formats/tensor_file.h"

namespace pagefold::testing {

using Bytes = std::vector<std::byte>;

template <class T>
void append_raw(Bytes& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* p = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), p, p + sizeof value);
}
inline void append_text(Bytes& out, std::string_view text) {
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), p, p + text.size());
}
inline void append_gguf_string(Bytes& out, std::string_view text) {
  append_raw(out, uint64_t{text.size()});
  append_text(out, text);
}
inline Bytes to_bytes(std::string_view text) {
  Bytes out;
  append_text(out, text);
  return out;
}
inline void write_bytes(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  // T: bool, any integer of 8 to 64 bits, float, double, text, or a vector of one of these.
  template <class T>
  void add(std::string_view key, const T& value) {
    Bytes body;
    uint32_t type = 0;
    if constexpr (std::is_convertible_v<T, std::string_view>) {
      type = 8;
      append_gguf_string(body, value);
    } else if constexpr (std::is_arithmetic_v<T>) {
      type = scalar_type<T>();
      append_raw(body, value);
    } else {
      type = 9;
      append_array(body, value);
    }
    add_raw(key, type, body);
  }
  // Any type number and any bytes.
  void add_raw(std::string_view key, uint32_t type, const Bytes& body) {
    append_gguf_string(metadata_, key);
    append_raw(metadata_, type);
    metadata_.insert(metadata_.end(), body.begin(), body.end());
    ++n_keys_;
  }

  // shape outermost first: {n_out, n_in}.
  void add_tensor(std::string_view name, TensorType type, const std::vector<int64_t>& shape,
                  const Bytes& bytes) {
    std::vector<uint64_t> dims(shape.rbegin(), shape.rend());
    add_raw_tensor(name, type_id(type), dims, next_offset(), bytes);
  }
  // Any type id, dims as in the file (fastest first), any offset; the bytes are appended to the
  // data at the next aligned place.
  void add_raw_tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                      uint64_t offset, const Bytes& bytes) {
    append_gguf_string(table_, name);
    append_raw(table_, static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) append_raw(table_, dim);
    append_raw(table_, type);
    append_raw(table_, offset);
    data_.resize(next_offset());
    data_.insert(data_.end(), bytes.begin(), bytes.end());
    ++n_tensors_;
  }
  // Where add_tensor would put the next one.
  uint64_t next_offset() const { return (data_.size() + alignment_ - 1) / alignment_ * alignment_; }

  // Writes the key too. Call it before the first tensor; `layout` false only writes the key.
  void set_alignment(uint32_t alignment, bool layout = true) {
    add("general.alignment", alignment);
    if (layout) alignment_ = alignment;
  }
  // Lies about the counts in the header.
  void force_counts(uint64_t tensors, uint64_t keys) {
    n_tensors_ = tensors;
    n_keys_ = keys;
  }

  Bytes finish() const {
    Bytes out;
    append_text(out, "GGUF");
    append_raw(out, version_);
    append_raw(out, n_tensors_);
    append_raw(out, n_keys_);
    out.insert(out.end(), metadata_.begin(), metadata_.end());
    out.insert(out.end(), table_.begin(), table_.end());
    if (n_tensors_ > 0) out.resize((out.size() + alignment_ - 1) / alignment_ * alignment_);
    out.insert(out.end(), data_.begin(), data_.end());
    return out;
  }
  void write_to(const std::filesystem::path& path) const { write_bytes(path, finish()); }

  static uint32_t type_id(TensorType type) {
    static const std::map<TensorType, uint32_t> ids = {
        {TensorType::F32, 0},     {TensorType::F16, 1},    {TensorType::Q4_0, 2},
        {TensorType::Q4_1, 3},    {TensorType::Q5_0, 6},   {TensorType::Q5_1, 7},
        {TensorType::Q8_0, 8},    {TensorType::Q2_K, 10},  {TensorType::Q3_K, 11},
        {TensorType::Q4_K, 12},   {TensorType::Q5_K, 13},  {TensorType::Q6_K, 14},
        {TensorType::IQ4_NL, 20}, {TensorType::MXFP4, 39}, {TensorType::I8, 24},
        {TensorType::I32, 26},    {TensorType::I64, 27},   {TensorType::BF16, 30}};
    return ids.at(type);
  }

 private:
  template <class T>
  static constexpr uint32_t scalar_type() {
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, double>) return 12;
    constexpr uint32_t kUnsigned[] = {0, 0, 2, 0, 4, 0, 0, 0, 10};
    constexpr uint32_t kSigned[] = {0, 1, 3, 0, 5, 0, 0, 0, 11};
    return std::is_signed_v<T> ? kSigned[sizeof(T)] : kUnsigned[sizeof(T)];
  }
  template <class T>
  static void append_array(Bytes& body, const std::vector<T>& values) {
    if constexpr (std::is_convertible_v<T, std::string_view>) {
      append_raw(body, uint32_t{8});
      append_raw(body, uint64_t{values.size()});
      for (const auto& value : values) append_gguf_string(body, value);
    } else {
      append_raw(body, scalar_type<T>());
      append_raw(body, uint64_t{values.size()});
      for (const T value : values) append_raw(body, value);
    }
  }

  uint32_t version_;
  uint64_t alignment_ = 32;
  uint64_t n_keys_ = 0;
  uint64_t n_tensors_ = 0;
  Bytes metadata_;
  Bytes table_;
  Bytes data_;
};

}  // namespace pagefold::testing
