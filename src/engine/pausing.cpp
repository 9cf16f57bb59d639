#include "engine/pausing.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace pagefold {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;  // of one write or read
constexpr uint64_t kMostHeld = uint64_t{128} << 20;  // not written yet; then a pause waits
constexpr size_t kPiecesAhead = 16;                  // read and not yet in their blocks, a sequence

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
    : model_(model),
      pool_(pool),
      block_bytes_(block_bytes),
      file_(std::move(file)),
      thread_(file_ ? std::make_unique<SpillThread>(kMostHeld) : nullptr) {
  if (!file_) return;
  file_->give_back_by([this](std::function<void()> work) { thread_->post(0, std::move(work)); });
}

// Appends (first block, blocks) for pieces of about kChunkBytes of `blocks` blocks from `first` on.
static void cut(size_t first, size_t blocks, uint64_t block_bytes,
                std::vector<std::pair<size_t, size_t>>& out) {
  const auto most = static_cast<size_t>(std::max<uint64_t>(1, kChunkBytes / block_bytes));
  for (size_t at = 0; at < blocks; at += most) {
    out.emplace_back(first + at, std::min(most, blocks - at));
  }
}

Status Pausing::spill(Sequence& s) {
  s.cache.collect_blocks(ids_, filled_);
  auto away = std::make_unique<SpilledCache>();
  away->lengths = s.cache.lengths();
  away->blocks = static_cast<int64_t>(ids_.size());
  PF_ASSIGN(away->extent, file_->take(ids_.size() * block_bytes_));
  away->writing = std::make_shared<SpillTransfer>();
  std::vector<std::pair<size_t, size_t>> pieces;
  cut(0, ids_.size(), block_bytes_, pieces);
  for (const auto& [first, n] : pieces) {
    const size_t bytes = n * block_bytes_;
    std::shared_ptr<std::byte[]> buffer(new std::byte[bytes]);
    model_.save_blocks({ids_.data() + first, n}, buffer.get());
    thread_->post(bytes, [buffer, bytes, at = first * block_bytes_, place = away->extent->place(),
                          transfer = away->writing, written = written_] {
      if (transfer->failed()) return;
      const Status done = place.write(at, {buffer.get(), bytes});
      if (done.ok())
        written->fetch_add(bytes, std::memory_order_relaxed);
      else
        transfer->fail(message_of(done));
    });
  }
  s.spilled = std::move(away);
  return ok_status();
}

void Pausing::set_full(const std::string& why) {
  if (!full_) log::warn("no request is admitted for now: {}", why);
  full_ = true;
  used_when_full_ = file_->used_bytes();
}

void Pausing::pause(Sequence& s, std::vector<BlockId>& freed) {
  ++s.times_paused;
  const uint32_t used = pool_.used_count() - pool_.idle_count();
  if (s.spilled) {  // on its way back: its bytes are still in the file
    s.spilled->filling.reset();
    log::info(
        "{}: paused for want of cache blocks, {} tokens in {} blocks are spilled still ({} of {} "
        "blocks in use)",
        s.request.id, s.n_computed, s.spilled->blocks, used, pool_.total());
    ++counts_.spilled;
    s.cache.free_all(pool_, freed);
    return;
  }
  if (file_ && s.n_computed > 0) {
    const auto start = Clock::now();
    const Status done = spill(s);
    if (done.ok()) {
      log::info(
          "{}: paused for want of cache blocks, {} tokens in {} blocks ({:.1f} MiB) set aside "
          "in {:.1f} ms ({} of {} blocks in use)",
          s.request.id, s.n_computed, s.spilled->blocks, mib(s.spilled->extent->bytes()),
          seconds_between(start, Clock::now()) * 1e3, used, pool_.total());
      ++counts_.spilled;
      s.cache.free_all(pool_, freed);
      return;
    }
    set_full(message_of(done));
  }
  log::info(
      "{}: paused for want of cache blocks, {} tokens will be computed again ({} of {} "
      "blocks in use)",
      s.request.id, s.n_computed, used, pool_.total());
  ++counts_.recomputed;
  s.cache.free_all(pool_, freed);
  start_again(s);
}

void Pausing::give_up_unwritten(Sequence& s) {
  if (!s.spilled->writing->failed()) return;
  const std::string why = s.spilled->writing->reason();
  s.spilled = nullptr;  // its space first
  set_full(why);
  log::info("{}: {} tokens will be computed again: {}", s.request.id, s.n_computed, why);
  --counts_.spilled;
  ++counts_.recomputed;
  start_again(s);
}

bool Pausing::take_blocks(Sequence& s, const PrefixIndex::Hit& hit) {
  PF_CHECK(s.spilled != nullptr, "a sequence without a spilled cache goes on");
  return s.cache.restore(pool_, s.spilled->lengths, hit.groups);
}

// Shared blocks are full already: only those of one's own are read, in runs.
void Pausing::begin_filling(Sequence& s) {
  SpilledCache& away = *s.spilled;
  away.filling = std::make_unique<SpilledCache::Filling>();
  SpilledCache::Filling& f = *away.filling;
  f.begin = Clock::now();
  f.transfer = std::make_shared<SpillTransfer>();
  s.cache.collect_blocks(f.ids, f.filled);
  PF_CHECK(static_cast<int64_t>(f.ids.size()) == away.blocks, "a spilled cache changed its shape");
  for (size_t at = 0; at < f.ids.size();) {
    size_t end = at;
    while (end < f.ids.size() && pool_.owners(f.ids[end]) == 1) ++end;
    cut(at, end - at, block_bytes_, f.pieces);
    at = end;
    while (at < f.ids.size() && pool_.owners(f.ids[at]) > 1) ++at;
  }
}

// Asks for pieces, some ahead. Behind what is still to be written: the order is that of the posts.
void Pausing::read_on(SpilledCache& away) {
  SpilledCache::Filling& f = *away.filling;
  for (; f.asked < f.pieces.size() && f.asked - f.done < kPiecesAhead; ++f.asked) {
    const auto [first, n] = f.pieces[f.asked];
    thread_->post(0, [first = first, n = n, block_bytes = block_bytes_,
                      place = away.extent->place(), writing = away.writing, transfer = f.transfer] {
      if (writing->failed()) return transfer->fail(writing->reason());
      const size_t bytes = n * block_bytes;
      std::shared_ptr<std::byte[]> buffer(new std::byte[bytes]);
      const Status done = place.read(first * block_bytes, {buffer.get(), bytes});
      if (!done.ok()) return transfer->fail(message_of(done));
      transfer->give({first, n, std::move(buffer)});
    });
  }
}

Status Pausing::fill_blocks(Sequence& s, bool wait) {
  SpilledCache& away = *s.spilled;
  if (!away.filling) begin_filling(s);
  SpilledCache::Filling& f = *away.filling;
  read_on(away);
  if (wait && f.done < f.pieces.size()) f.transfer->wait();
  SpillTransfer::Piece piece;
  while (f.transfer->take(piece)) {
    model_.load_blocks({f.ids.data() + piece.first, piece.blocks},
                       {f.filled.data() + piece.first, piece.blocks}, piece.bytes.get());
    counts_.read += piece.blocks * block_bytes_;
    ++f.done;
    read_on(away);
  }
  if (f.done < f.pieces.size()) {
    return f.transfer->failed() ? io_error("{}", f.transfer->reason()) : ok_status();
  }
  uint64_t read = 0;
  for (const auto& [first, n] : f.pieces) read += n * block_bytes_;
  log::info("{}: goes on, {} blocks ({:.1f} MiB read back within {:.1f} ms, the rest is shared)",
            s.request.id, away.blocks, mib(read), seconds_between(f.begin, Clock::now()) * 1e3);
  s.spilled = nullptr;
  return ok_status();
}

void Pausing::lost(Sequence& s, std::vector<BlockId>& freed) {
  const bool unwritten = s.spilled->writing->failed();
  const std::string why = s.spilled->writing->reason();
  s.spilled = nullptr;
  if (unwritten) set_full(why);
  s.cache.free_all(pool_, freed);
  start_again(s);
}

bool Pausing::full() {
  if (full_ && used_bytes() < used_when_full_) full_ = false;
  return full_;
}

}  // namespace pagefold
