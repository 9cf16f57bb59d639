#include "quantize/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"

namespace pagefold {
namespace {

// Of one header entry besides its name: braces, keys, type, a shape and two offsets.
constexpr size_t kEntryRoom = 140;
constexpr size_t kBuffer = 1 << 20;
constexpr std::string_view kHeaderStart = "{\"__metadata__\":{\"format\":\"pt\"}";

std::string shard_name(int shard, int shards) {
  if (shards == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}
std::string temporary_name(int shard) { return fmt::format("model-{:05}.part", shard + 1); }

Status write_at(int fd, std::span<const std::byte> bytes, uint64_t at, std::string_view file) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return io_error("{}: {}", file, std::strerror(n < 0 ? errno : ENOSPC));
    bytes = bytes.subspan(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
  return ok_status();
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path folder, uint64_t max_shard_bytes,
                                     size_t expected_tensors)
    : folder_(std::move(folder)),
      max_shard_(max_shard_bytes),
      // A multiple of 64, so that data begins where vector loads like it.
      header_room_((expected_tensors * (kEntryRoom + 60) + 128 + 63) / 64 * 64) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ >= 0) ::close(fd_);
}

Status SafetensorsWriter::failed(std::string_view what) const {
  return io_error("{}: {}: {}", (folder_ / temporary_name(shards_)).string(), what,
                  std::strerror(errno));
}

Status SafetensorsWriter::open_shard() {
  const std::filesystem::path path = folder_ / temporary_name(shards_);
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0) return failed("open");
  header_ = kHeaderStart;
  header_used_ = header_.size();
  shard_bytes_ = written_ = 0;
  return ok_status();
}

Status SafetensorsWriter::flush() {
  const uint64_t at = 8 + header_room_ + written_ - buffer_.size();
  PF_TRY(write_at(fd_, buffer_, at, (folder_ / temporary_name(shards_)).string()));
  buffer_.clear();
  return ok_status();
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  written_ += bytes.size();
  return buffer_.size() >= kBuffer ? flush() : ok_status();
}

void SafetensorsWriter::add_entry(const std::string& name, TensorType type,
                                  const std::vector<int64_t>& shape, uint64_t bytes) {
  header_ += ',';
  append_json_string(header_, name);
  header_ += fmt::format(":{{\"dtype\":\"{}\",\"shape\":[", tensor_type_info(type).name);
  for (size_t i = 0; i < shape.size(); ++i) header_ += fmt::format("{}{}", i ? "," : "", shape[i]);
  header_ += fmt::format("],\"data_offsets\":[{},{}]}}", written_, written_ + bytes);
}

// Wide elements first: each lies at a multiple of its size.
Status SafetensorsWriter::append_late() {
  std::stable_sort(late_.begin(), late_.end(), [](const Late& a, const Late& b) {
    return tensor_type_info(a.type).block_bytes > tensor_type_info(b.type).block_bytes;
  });
  for (const Late& t : late_) {
    add_entry(t.name, t.type, t.shape, t.bytes.size());
    PF_TRY(append(t.bytes));
  }
  late_.clear();
  return ok_status();
}

// The room that the entries leave is filled with spaces, which the format allows.
Status SafetensorsWriter::close_shard() {
  PF_TRY(append_late());
  PF_TRY(flush());
  header_ += '}';
  PF_CHECK(header_.size() <= header_room_);
  header_.resize(header_room_, ' ');
  std::vector<std::byte> bytes(8 + header_room_);
  const uint64_t length = header_room_;
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header_.data(), header_.size());
  PF_TRY(write_at(fd_, bytes, 0, (folder_ / temporary_name(shards_)).string()));
  if (::fsync(fd_) != 0) return failed("fsync");
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) return failed("close");
  ++shards_;
  return ok_status();
}

Status SafetensorsWriter::begin(const std::string& name, TensorType type,
                                const std::vector<int64_t>& shape) {
  PF_CHECK(left_ == 0, "a tensor was not finished");
  const TensorTypeInfo& info = tensor_type_info(type);
  PF_CHECK(info.block_elements == 1);
  auto bytes = static_cast<uint64_t>(info.block_bytes);
  for (const int64_t n : shape) bytes *= static_cast<uint64_t>(n);
  std::string quoted;
  append_json_string(quoted, name);
  const size_t entry = quoted.size() + kEntryRoom;
  const bool no_room = header_used_ + entry > header_room_;
  if (fd_ >= 0 && (no_room || (shard_bytes_ > 0 && shard_bytes_ + bytes > max_shard_)))
    PF_TRY(close_shard());
  if (fd_ < 0) {
    header_room_ = std::max(header_room_, (kHeaderStart.size() + entry + 63) / 64 * 64);
    PF_TRY(open_shard());
  }
  header_used_ += entry;
  shard_bytes_ += bytes;
  total_ += bytes;
  late_open_ = bytes % 8 != 0;
  if (late_open_) {
    late_.push_back({name, type, shape, {}});
  } else {
    add_entry(name, type, shape, bytes);
  }
  names_.emplace_back(name, shards_);
  left_ = bytes;
  return ok_status();
}

Status SafetensorsWriter::write(std::span<const std::byte> bytes) {
  PF_CHECK(bytes.size() <= left_, "more bytes than the tensor has");
  left_ -= bytes.size();
  if (!late_open_) return append(bytes);
  std::vector<std::byte>& to = late_.back().bytes;
  to.insert(to.end(), bytes.begin(), bytes.end());
  return ok_status();
}

Status SafetensorsWriter::end() {
  PF_CHECK(left_ == 0, "fewer bytes than the tensor has");
  return ok_status();
}

Status SafetensorsWriter::add(const std::string& name, TensorType type,
                              const std::vector<int64_t>& shape, std::span<const std::byte> bytes) {
  PF_TRY(begin(name, type, shape));
  PF_TRY(write(bytes));
  return end();
}

Status SafetensorsWriter::finish() {
  if (fd_ < 0) PF_TRY(open_shard());  // no tensor at all
  PF_TRY(close_shard());
  Json index = {{"metadata", {{"total_size", total_}}}, {"weight_map", Json::object()}};
  for (const auto& [name, shard] : names_) index["weight_map"][name] = shard_name(shard, shards_);
  for (int i = 0; i < shards_; ++i) {
    std::error_code ec;
    const auto to = folder_ / shard_name(i, shards_);
    std::filesystem::rename(folder_ / temporary_name(i), to, ec);
    if (ec) return io_error("{}: {}", to.string(), ec.message());
  }
  if (shards_ == 1) return ok_status();
  return write_file_atomic(folder_ / "model.safetensors.index.json", dump_json(index));
}

}  // namespace pagefold
