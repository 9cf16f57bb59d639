// Writes a checkpoint's tensors as they come, in shards of a bounded size, without holding more
// than the rows at hand. Format: see formats/safetensors.h; names and index as the Transformers
// library writes them (model.safetensors, or model-00001-of-00003.safetensors and
// model.safetensors.index.json).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/tensor_file.h"

namespace pagefold {

class SafetensorsWriter {
 public:
  // folder: exists. max_shard_bytes: of tensor data; a larger tensor gets a shard of its own.
  // expected_tensors: how many will come; room for the header is set aside by it (more than that
  // many open one more shard).
  SafetensorsWriter(std::filesystem::path folder, uint64_t max_shard_bytes,
                    size_t expected_tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // begin, any number of writes that give exactly the tensor's bytes, end. Plain types only.
  // shape: outermost first.
  Status begin(const std::string& name, TensorType type, const std::vector<int64_t>& shape);
  Status write(std::span<const std::byte> bytes);
  Status end();
  // All three at once.
  Status add(const std::string& name, TensorType type, const std::vector<int64_t>& shape,
             std::span<const std::byte> bytes);
  // The last header, the final names and, with several shards, the index. Nothing may follow.
  Status finish();

  uint64_t data_bytes() const { return total_; }
  size_t tensors() const { return names_.size(); }

 private:
  // A tensor of no whole number of 8 bytes: it waits for the end of its shard, so that everything
  // before it stays aligned, as readers that view the file in place need it.
  struct Late {
    std::string name;
    TensorType type;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  Status open_shard();
  Status close_shard();
  Status append(std::span<const std::byte> bytes);
  Status append_late();
  Status flush();
  void add_entry(const std::string& name, TensorType type, const std::vector<int64_t>& shape,
                 uint64_t bytes);
  Status failed(std::string_view what) const;

  std::filesystem::path folder_;
  uint64_t max_shard_ = 0, total_ = 0;
  size_t header_room_ = 0;
  int fd_ = -1;
  int shards_ = 0;
  uint64_t shard_bytes_ = 0;  // of data in the open shard, what waits included
  uint64_t written_ = 0;      // of it, what does not wait
  uint64_t left_ = 0;         // of the tensor that was begun
  bool late_open_ = false;    // it waits
  std::vector<Late> late_;
  size_t header_used_ = 0;                          // at most, with the entries of what waits
  std::string header_;                              // entries of the open shard
  std::vector<std::byte> buffer_;                   // small writes are joined
  std::vector<std::pair<std::string, int>> names_;  // tensor, shard
};

// The bytes of values, for add().
template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace pagefold
