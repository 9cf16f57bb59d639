#include "formats/weights_key.h"

#define XXH_INLINE_ALL
#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace pagefold {
namespace {

constexpr size_t kStrips = 4, kStripBytes = 4096;

struct FreeState {
  void operator()(XXH3_state_t* s) const { XXH3_freeState(s); }
};

class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }
  void add(const void* data, size_t bytes) { XXH3_64bits_update(state_.get(), data, bytes); }
  // Its length too: neighbours never run into each other.
  void add(std::string_view text) {
    add(uint64_t{text.size()});
    add(text.data(), text.size());
  }
  void add(uint64_t number) { add(&number, sizeof number); }
  uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

void add_data(std::span<const std::byte> data, Hash& hash) {
  hash.add(uint64_t{data.size()});
  if (data.size() <= kStrips * kStripBytes) {
    hash.add(data.data(), data.size());
    return;
  }
  for (size_t i = 0; i < kStrips; ++i) {
    const size_t at = (data.size() - kStripBytes) * i / (kStrips - 1);
    hash.add(data.data() + at, kStripBytes);
  }
}

}  // namespace

std::string weights_key(std::span<const TensorInfo> tensors) {
  std::vector<const TensorInfo*> sorted;
  for (const TensorInfo& t : tensors) sorted.push_back(&t);
  std::sort(sorted.begin(), sorted.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->name < b->name; });
  Hash hash;
  for (const TensorInfo* t : sorted) {
    hash.add(t->name);
    hash.add(tensor_type_info(t->type).name);
    hash.add(uint64_t{t->shape.size()});
    for (const int64_t n : t->shape) hash.add(static_cast<uint64_t>(n));
    add_data(t->data, hash);
  }
  return fmt::format("{:016x}", hash.value());
}

}  // namespace pagefold
