#include "kv/sequence_signals.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kv/pooling.h"

namespace pagefold {
namespace {

constexpr int kMostSegments = 8;

template <class T>
void compact_row(std::vector<T>& row, int64_t offset, const TableMoves& m, int block_size) {
  T* data = row.data() + offset;
  for (const SlotMove& move : m.moves) data[move.to] = data[move.from];
  if (m.dropped_blocks.empty()) return;
  int64_t to = 0;
  size_t next = 0;
  for (int64_t begin = 0; begin < m.len_before; begin += block_size) {
    if (next < m.dropped_blocks.size() && m.dropped_blocks[next] * block_size == begin) {
      ++next;
      continue;
    }
    const int64_t n = std::min<int64_t>(block_size, m.len_before - begin);
    if (to != begin) std::copy_n(data + begin, n, data + to);
    to += n;
  }
}

void put(std::string& out, const void* data, size_t bytes) {
  out.append(static_cast<const char*>(data), bytes);
}

}  // namespace

SequenceSignals::SequenceSignals(const KvModel& model, const Needs& needs, int64_t expected_slots)
    : model_(model), needs_(needs), len_(static_cast<size_t>(model.n_tables()), 0) {
  const auto tables = static_cast<size_t>(model.n_tables());
  positions_.resize(tables);
  if (needs.form != MassForm::none && needs.keep != MassKeep::history) mass_.resize(tables);
  if (needs.keep == MassKeep::interval_max) interval_.resize(tables);
  if (needs.keep == MassKeep::history) {
    history_bits_.resize(tables);
    history_mass_.resize(tables);
    history_.resize(tables);
  }
  mass_pointers_.resize(tables, nullptr);
  if (needs.wants_stats()) {
    const auto n = static_cast<size_t>(model.n_layers) * static_cast<size_t>(model.n_heads) *
                   static_cast<size_t>(model.bands());
    sum_store_.assign(3 * n, 0.0);
    sums_ = {0, sum_store_.data(), sum_store_.data() + n, sum_store_.data() + 2 * n};
  }
  if (needs.query_ring > 0) {
    ring_store_.assign(static_cast<size_t>(model.n_layers) * static_cast<size_t>(needs.query_ring) *
                           static_cast<size_t>(model.n_heads) * static_cast<size_t>(model.head_dim),
                       0.0f);
    ring_ = {ring_store_.data(), needs.query_ring};
  }
  grow(std::max<int64_t>(expected_slots, 16));
}

void SequenceSignals::grow(int64_t slots) {
  if (slots <= capacity_) return;
  const int64_t capacity = std::max(slots, 2 * capacity_);
  const int words = (needs_.window + 63) / 64;
  const int segments = std::min(needs_.window, kMostSegments);
  for (size_t t = 0; t < len_.size(); ++t) {
    if (!model_.compressed(static_cast<int>(t) / model_.n_kv_heads)) continue;
    positions_[t].resize(static_cast<size_t>(capacity));
    if (!mass_.empty()) mass_[t].resize(static_cast<size_t>(capacity));
    if (!interval_.empty()) interval_[t].resize(static_cast<size_t>(capacity));
    if (history_.empty()) continue;
    std::vector<uint64_t> bits(static_cast<size_t>(words) * static_cast<size_t>(capacity), 0);
    std::vector<float> sums(static_cast<size_t>(segments) * static_cast<size_t>(capacity), 0.0f);
    for (int w = 0; w < words; ++w) {
      std::copy_n(history_bits_[t].data() + w * capacity_, len_[t], bits.data() + w * capacity);
    }
    for (int g = 0; g < segments; ++g) {
      std::copy_n(history_mass_[t].data() + g * capacity_, len_[t], sums.data() + g * capacity);
    }
    history_bits_[t] = std::move(bits);
    history_mass_[t] = std::move(sums);
    history_[t] = {history_bits_[t].data(),
                   history_mass_[t].data(),
                   capacity,
                   needs_.window,
                   words,
                   segments,
                   (needs_.window + segments - 1) / segments};
  }
  capacity_ = capacity;
}

void SequenceSignals::extend(const TableView* tables, int64_t first_pos, int64_t rows) {
  int64_t longest = 0;
  for (size_t t = 0; t < len_.size(); ++t) longest = std::max(longest, tables[t].len + rows);
  grow(longest);
  for (size_t t = 0; t < len_.size(); ++t) {
    if (!model_.compressed(static_cast<int>(t) / model_.n_kv_heads)) continue;
    PF_CHECK(len_[t] == tables[t].len, "signals and table disagree about the slots");
    const int64_t n = len_[t];
    for (int64_t r = 0; r < rows; ++r) {
      positions_[t][static_cast<size_t>(n + r)] = static_cast<int32_t>(first_pos + r);
    }
    if (!mass_.empty()) std::fill_n(mass_[t].data() + n, rows, 0.0f);
    if (!interval_.empty()) std::fill_n(interval_[t].data() + n, rows, 0.0f);
    if (!history_.empty()) {
      const HistoryArrays& h = history_[t];
      for (int w = 0; w < h.words; ++w) std::fill_n(h.bits + w * h.stride + n, rows, 0);
      for (int g = 0; g < h.segments; ++g) std::fill_n(h.mass + g * h.stride + n, rows, 0.0f);
    }
    len_[t] += rows;
  }
}

const Observation& SequenceSignals::observe(int64_t first_pos, int first_row, int n_rows,
                                            int stats_first_row, int stats_rows) {
  observation_ = {};
  observation_.first_position = first_pos;
  if (n_rows > 0) {
    observation_.form = needs_.form;
    observation_.first_row = first_row;
    observation_.n_rows = n_rows;
    if (!history_.empty()) {
      observation_.history = history_.data();
    } else {
      auto& store = interval_.empty() ? mass_ : interval_;
      for (size_t t = 0; t < len_.size(); ++t) {
        mass_pointers_[t] = store[t].empty() ? nullptr : store[t].data();
      }
      observation_.mass = mass_pointers_.data();
    }
    if (!interval_.empty()) interval_rows_ += n_rows;
  }
  if (stats_rows > 0 && sums_.re != nullptr) {
    observation_.stats_first_row = stats_first_row;
    observation_.stats_rows = stats_rows;
    observation_.stats = &sums_;
    sums_.rows += stats_rows;
  }
  if (ring_.data != nullptr) observation_.ring = &ring_;
  return observation_;
}

void SequenceSignals::clear_mass() {
  for (auto& row : mass_) std::fill(row.begin(), row.end(), 0.0f);
}

void SequenceSignals::pool_prompt(int kernel) {
  std::vector<float> pooled;
  for (size_t t = 0; t < mass_.size(); ++t) {
    if (mass_[t].empty()) continue;
    pooled.resize(static_cast<size_t>(len_[t]));
    pool_by_position(mass_[t].data(), positions_[t].data(), len_[t], kernel, Pool::max,
                     pooled.data());
    std::copy(pooled.begin(), pooled.end(), mass_[t].begin());
  }
}

void SequenceSignals::fold() {
  if (interval_rows_ == 0) return;
  const float scale = 1.0f / static_cast<float>(interval_rows_);
  for (size_t t = 0; t < interval_.size(); ++t) {
    for (int64_t s = 0; s < len_[t]; ++s) {
      const auto i = static_cast<size_t>(s);
      mass_[t][i] = std::max(mass_[t][i], interval_[t][i] * scale);
      interval_[t][i] = 0;
    }
  }
  interval_rows_ = 0;
}

void SequenceSignals::apply(const MovePlan& plan, int block_size) {
  for (const TableMoves& m : plan.tables) {
    const auto t = static_cast<size_t>(m.layer * model_.n_kv_heads + m.head);
    PF_CHECK(len_[t] == m.len_before, "signals and plan disagree about the slots");
    compact_row(positions_[t], 0, m, block_size);
    if (!mass_.empty()) compact_row(mass_[t], 0, m, block_size);
    if (!interval_.empty()) compact_row(interval_[t], 0, m, block_size);
    if (!history_.empty()) {
      for (int w = 0; w < history_[t].words; ++w) {
        compact_row(history_bits_[t], w * capacity_, m, block_size);
      }
      for (int g = 0; g < history_[t].segments; ++g) {
        compact_row(history_mass_[t], g * capacity_, m, block_size);
      }
    }
    len_[t] = m.len_after;
  }
}

void SequenceSignals::clear() {
  std::fill(len_.begin(), len_.end(), 0);
  std::fill(sum_store_.begin(), sum_store_.end(), 0.0);
  std::fill(ring_store_.begin(), ring_store_.end(), 0.0f);
  sums_.rows = 0;
  interval_rows_ = 0;
}

const int32_t* SequenceSignals::positions(int table) const {
  return positions_[static_cast<size_t>(table)].data();
}

float* SequenceSignals::mass(int table) {
  if (mass_.empty()) return nullptr;
  auto& row = mass_[static_cast<size_t>(table)];
  return row.empty() ? nullptr : row.data();
}

SlotSignals SequenceSignals::view(int table) const {
  const auto t = static_cast<size_t>(table);
  SlotSignals s;
  s.n = len_[t];
  s.positions = positions_[t].data();
  if (!mass_.empty()) s.mass = mass_[t].data();
  if (!interval_.empty()) s.interval_mass = interval_[t].data();
  s.interval_rows = interval_rows_;
  if (!history_.empty()) s.history = &history_[t];
  return s;
}

int64_t SequenceSignals::bytes() const {
  int64_t slot = sizeof(int32_t);
  if (!mass_.empty()) slot += sizeof(float);
  if (!interval_.empty()) slot += sizeof(float);
  if (!history_.empty()) {
    slot += static_cast<int64_t>((needs_.window + 63) / 64) * 8;
    slot += static_cast<int64_t>(std::min(needs_.window, kMostSegments)) * 4;
  }
  int64_t total = 0;
  for (const int64_t n : len_) total += n * slot;
  return total + static_cast<int64_t>(sum_store_.size() * sizeof(double)) +
         static_cast<int64_t>(ring_store_.size() * sizeof(float));
}

// Calls f(pointer, bytes) for every piece of state after the lengths, in a fixed order.
template <class F>
void SequenceSignals::for_arrays(F&& f) {
  for (size_t t = 0; t < len_.size(); ++t) {
    if (positions_[t].empty()) continue;
    const auto n = static_cast<size_t>(len_[t]);
    f(positions_[t].data(), n * sizeof(int32_t));
    if (!mass_.empty()) f(mass_[t].data(), n * sizeof(float));
    if (!interval_.empty()) f(interval_[t].data(), n * sizeof(float));
    if (history_.empty()) continue;
    const HistoryArrays& h = history_[t];
    for (int w = 0; w < h.words; ++w) f(h.bits + w * h.stride, n * sizeof(uint64_t));
    for (int g = 0; g < h.segments; ++g) f(h.mass + g * h.stride, n * sizeof(float));
  }
  f(sum_store_.data(), sum_store_.size() * sizeof(double));
  f(ring_store_.data(), ring_store_.size() * sizeof(float));
}

std::string SequenceSignals::save() const {
  std::string out;
  put(out, len_.data(), len_.size() * sizeof(int64_t));
  put(out, &interval_rows_, sizeof interval_rows_);
  put(out, &sums_.rows, sizeof sums_.rows);
  const_cast<SequenceSignals*>(this)->for_arrays(
      [&](void* data, size_t bytes) { put(out, data, bytes); });
  return out;
}

Status SequenceSignals::restore(std::string_view bytes) {
  const auto take = [&](void* to, size_t n) {
    if (bytes.size() < n) return false;
    if (n > 0) std::memcpy(to, bytes.data(), n);
    bytes.remove_prefix(n);
    return true;
  };
  std::vector<int64_t> lengths(len_.size());
  bool ok = take(lengths.data(), lengths.size() * sizeof(int64_t)) &&
            take(&interval_rows_, sizeof interval_rows_) && take(&sums_.rows, sizeof sums_.rows);
  int64_t longest = 0;
  for (const int64_t n : lengths) {
    ok = ok && n >= 0 && static_cast<uint64_t>(n) <= bytes.size() / sizeof(int32_t);
    longest = std::max(longest, n);
  }
  if (ok) {
    std::fill(len_.begin(), len_.end(), 0);  // grow() copies what is there: nothing
    grow(longest);
    len_ = lengths;
    for_arrays([&](void* data, size_t n) { ok = ok && take(data, n); });
  }
  if (!ok || !bytes.empty()) {
    clear();
    return bad_data("spilled signals: {} than the sequence's shape needs",
                    bytes.empty() ? "fewer bytes" : "other bytes");
  }
  return ok_status();
}

}  // namespace pagefold
