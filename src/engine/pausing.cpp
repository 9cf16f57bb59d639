#include "engine/pausing.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace pagefold {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;  // of one write

double mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// As it was submitted; generated tokens stay, and are computed again like the prompt.
void start_again(Sequence& s) {
  // Of a session only the tokens are left: what its turns had evicted is read again, and what they
  // had dropped is no part of it any more.
  if (s.session_note == "continued") s.session_note = "reread: paused without room for its cache";
  for (auto h = s.hidden.rbegin(); h != s.hidden.rend(); ++h) {
    s.tokens.erase(s.tokens.begin() + h->begin, s.tokens.begin() + h->end);
    s.n_prompt -= h->end - h->begin;
    if (s.request.suffix_begin > 0) s.request.suffix_begin -= h->end - h->begin;
  }
  s.hidden.clear();
  if (s.asked_plan) s.plan = std::move(s.asked_plan);
  s.compression.reset();
  s.n_computed = 0;
  s.prefix = {};
  s.publishes = true;
  s.quest_blocks_read[0] = s.quest_blocks_read[1] = 0;
}

}  // namespace

Pausing::Pausing(LanguageModel& model, BlockPool& pool, uint64_t block_bytes,
                 std::unique_ptr<SpillFile> file)
    : model_(model), pool_(pool), block_bytes_(block_bytes), file_(std::move(file)) {}

// Calls f(first block, blocks, bytes before) for pieces of about kChunkBytes.
template <class F>
static Status in_chunks(size_t blocks, uint64_t block_bytes, F f) {
  const auto most = static_cast<size_t>(std::max<uint64_t>(1, kChunkBytes / block_bytes));
  for (size_t at = 0; at < blocks; at += most) {
    PF_TRY(f(at, std::min(most, blocks - at), at * block_bytes));
  }
  return ok_status();
}

Status Pausing::spill(Sequence& s) {
  s.cache.collect_blocks(ids_, filled_);
  auto away = std::make_unique<SpilledCache>();
  away->lengths = s.cache.lengths();
  away->blocks = static_cast<int64_t>(ids_.size());
  PF_ASSIGN(away->extent, file_->take(ids_.size() * block_bytes_));
  const Status moved =
      in_chunks(ids_.size(), block_bytes_, [&](size_t at, size_t n, uint64_t bytes) -> Status {
        buffer_.resize(n * block_bytes_);
        model_.save_blocks({ids_.data() + at, n}, buffer_.data());
        return away->extent->write(bytes, buffer_);
      });
  PF_TRY(moved);
  counts_.written += away->extent->bytes();
  s.spilled = std::move(away);
  return ok_status();
}

void Pausing::pause(Sequence& s, std::vector<BlockId>& freed) {
  ++s.times_paused;
  const uint32_t used = pool_.used_count() - pool_.idle_count();
  if (file_ && s.n_computed > 0) {
    const auto start = Clock::now();
    const Status done = spill(s);
    if (done.ok()) {
      log::info(
          "{}: paused for want of cache blocks, {} tokens in {} blocks ({:.1f} MiB) spilled "
          "in {:.1f} ms ({} of {} blocks in use)",
          s.request.id, s.n_computed, s.spilled->blocks, mib(s.spilled->extent->bytes()),
          seconds_between(start, Clock::now()) * 1e3, used, pool_.total());
      ++counts_.spilled;
      s.cache.free_all(pool_, freed);
      return;
    }
    if (!full_) log::warn("no request is admitted for now: {}", message_of(done));
    full_ = true;
    used_when_full_ = file_->used_bytes();
  }
  log::info(
      "{}: paused for want of cache blocks, {} tokens will be computed again ({} of {} "
      "blocks in use)",
      s.request.id, s.n_computed, used, pool_.total());
  ++counts_.recomputed;
  s.cache.free_all(pool_, freed);
  start_again(s);
}

bool Pausing::take_blocks(Sequence& s, const PrefixIndex::Hit& hit) {
  PF_CHECK(s.spilled != nullptr, "a sequence without a spilled cache goes on");
  return s.cache.restore(pool_, s.spilled->lengths, hit.groups);
}

Status Pausing::fill_blocks(Sequence& s) {
  const std::unique_ptr<SpilledCache> away = std::move(s.spilled);
  s.cache.collect_blocks(ids_, filled_);
  PF_CHECK(static_cast<int64_t>(ids_.size()) == away->blocks, "a spilled cache changed its shape");
  const auto start = Clock::now();
  // Shared blocks are full already: only those of one's own are read, in runs.
  uint64_t read = 0;
  for (size_t at = 0; at < ids_.size();) {
    size_t end = at;
    while (end < ids_.size() && pool_.owners(ids_[end]) == 1) ++end;
    const Status moved =
        in_chunks(end - at, block_bytes_, [&](size_t from, size_t n, uint64_t bytes) -> Status {
          buffer_.resize(n * block_bytes_);
          PF_TRY(away->extent->read(at * block_bytes_ + bytes, buffer_));
          model_.load_blocks({ids_.data() + at + from, n}, {filled_.data() + at + from, n},
                             buffer_.data());
          read += n * block_bytes_;
          return ok_status();
        });
    PF_TRY(moved);
    at = end;
    while (at < ids_.size() && pool_.owners(ids_[at]) > 1) ++at;
  }
  counts_.read += read;
  log::info("{}: goes on, {} blocks ({:.1f} MiB read back in {:.1f} ms, the rest is shared)",
            s.request.id, away->blocks, mib(read), seconds_between(start, Clock::now()) * 1e3);
  return ok_status();
}

void Pausing::lost(Sequence& s, std::vector<BlockId>& freed) {
  s.cache.free_all(pool_, freed);
  start_again(s);
}

bool Pausing::full() {
  if (full_ && used_bytes() < used_when_full_) full_ = false;
  return full_;
}

}  // namespace pagefold
