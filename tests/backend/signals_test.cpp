// What a step observes besides mass, and what changes what it reads: history bits, query ring and
// statistics, live masks, re-indexed sinks.
#include "backend/attention_rig.h"

namespace pagefold {
namespace {

std::vector<float> run_signals(Rig& rig, int total, int chunk, const auto& signals_of) {
  std::vector<float> out;
  while (rig.len() < total) {
    const int at = static_cast<int>(rig.len());
    const int rows = std::min(chunk, total - at);
    const SeqSignals s = signals_of(at, rows);
    const auto part = rig.step(rows, &s);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

// The group's mean probabilities of every row: [row][slot].
std::vector<std::vector<double>> mean_rows(Rig& rig, int kv, int total) {
  std::vector<std::vector<double>> mean;
  for (int row = 0; row < total; ++row) {
    auto p = rig.probabilities(row, kv * rig.group());
    for (int g = 1; g < rig.group(); ++g) {
      const auto more = rig.probabilities(row, kv * rig.group() + g);
      for (size_t i = 0; i < p.size(); ++i) p[i] += more[i];
    }
    for (double& v : p) v /= rig.group();
    mean.push_back(std::move(p));
  }
  return mean;
}

constexpr int kTotal = 330, kFirst = 40, kWindow = 150, kSegments = 5, kSegmentRows = 32;
constexpr int64_t kPosition = 1000;  // of row 0: positions are no slots

// The last row below kTotal whose position has the given number under `of`; -1: none observed.
int last_row(int number, const auto& of) {
  for (int row = kTotal - 1; row >= kFirst; --row)
    if (of(kPosition + row) == number) return row;
  return -1;
}

// Bit i belongs to the last row with position % window == i; rows before the slot's own leave 0.
void expect_bits(const Observed& seen, size_t kv, const std::vector<std::vector<double>>& mean) {
  const HistoryArrays& h = seen.history_at[kv];
  for (int i = 0; i < 64 * h.words; ++i) {
    const int row = last_row(i, [](int64_t position) { return position % kWindow; });
    for (int64_t slot = 0; slot < h.stride; ++slot) {
      const uint64_t bit = h.bits[i / 64 * h.stride + slot] >> (i % 64) & 1;
      if (row < slot) {
        ASSERT_EQ(bit, 0u) << "slot " << slot << " bit " << i;
        continue;
      }
      const double p = mean[static_cast<size_t>(row)][static_cast<size_t>(slot)];
      const double limit = 1.0 / (row + 1);
      if (std::abs(p - limit) < 1e-4 * limit) continue;  // too close to tell
      ASSERT_EQ(bit, uint64_t{p < limit}) << "slot " << slot << " bit " << i;
    }
  }
}

// Sums of the newest rows of every segment.
void expect_segments(const Observed& seen, size_t kv,
                     const std::vector<std::vector<double>>& mean) {
  const HistoryArrays& h = seen.history_at[kv];
  for (int segment = 0; segment < kSegments; ++segment) {
    const int last =
        last_row(segment, [](int64_t position) { return position / kSegmentRows % kSegments; });
    ASSERT_GE(last, 0);
    const int64_t of = (kPosition + last) / kSegmentRows;
    for (int64_t slot = 0; slot < h.stride; ++slot) {
      double want = 0;
      for (int64_t row = std::max<int64_t>(kFirst, slot); row <= last; ++row)
        if ((kPosition + row) / kSegmentRows == of)
          want += mean[static_cast<size_t>(row)][static_cast<size_t>(slot)];
      ASSERT_NEAR(h.mass[segment * h.stride + slot], want, 2e-5 * want + 1e-7)
          << "slot " << slot << " segment " << segment;
    }
  }
}

TEST(History, BitsAndSegmentSumsOfEveryObservedRow) {
  for (const int chunk : {1, 50, 330}) {
    SCOPED_TRACE(::testing::Message() << "chunks of " << chunk);
    RigOptions o{.dtype = DType::f32, .threads = 2};
    Rig rig(o);
    Observed seen(o, kWindow, kSegments, kSegmentRows);
    run_signals(rig, kTotal, chunk, [&](int at, int rows) {
      const int begin = std::clamp(kFirst - at, 0, rows);
      return seen.rows(begin, rows - begin, false, kPosition + at);
    });
    for (int kv = 0; kv < o.n_kv_heads; ++kv) {
      const auto mean = mean_rows(rig, kv, kTotal);
      expect_bits(seen, static_cast<size_t>(kv), mean);
      expect_segments(seen, static_cast<size_t>(kv), mean);
    }
  }
}

void rotate(const float* x, int dim, bool half_layout, double angle_step, int64_t position,
            double* out) {
  for (int f = 0; f < dim / 2; ++f) {
    const int a = half_layout ? f : 2 * f, b = half_layout ? f + dim / 2 : 2 * f + 1;
    const double angle = position * angle_step * (f + 1), c = std::cos(angle), s = std::sin(angle);
    out[a] = x[a] * c - x[b] * s;
    out[b] = x[a] * s + x[b] * c;
  }
}

void set_angles(Rig& rig, int64_t first_position, int rows, double angle_step,
                std::vector<float>& cos, std::vector<float>& sin) {
  const int half = rig.options().head_dim / 2;
  for (int r = 0; r < rows; ++r) {
    for (int f = 0; f < half; ++f) {
      const double angle = static_cast<double>(first_position + r) * angle_step * (f + 1);
      cos[static_cast<size_t>(r * half + f)] = static_cast<float>(std::cos(angle));
      sin[static_cast<size_t>(r * half + f)] = static_cast<float>(std::sin(angle));
    }
  }
}

TEST(Queries, RingKeepsTheLastRowsAndStatisticsAddUnrotated) {
  for (const bool half_layout : {true, false}) {
    for (const int chunk : {1, 3, 20}) {
      RigOptions o{.head_dim = 8, .dtype = DType::f32, .threads = 2, .max_slots = 64};
      Rig rig(o);
      rig.half_layout = half_layout;
      const int total = 40, ring = 7, bands = 4, from = 11, position = 1000;
      std::vector<float> kept(static_cast<size_t>(o.n_heads * ring * o.head_dim));
      std::vector<double> re(static_cast<size_t>(o.n_heads * bands)), im = re, abs = re;
      const QueryRing queries{kept.data(), ring};
      const QuerySums sums{0, re.data(), im.data(), abs.data()};
      Observation observation;
      observation.ring = &queries;
      observation.stats = &sums;
      run_signals(rig, total, chunk, [&](int at, int rows) {
        set_angles(rig, at, rows, 0.1, rig.cos_, rig.sin_);
        observation.first_position = position + at;
        observation.stats_first_row = std::clamp(from - at, 0, rows);
        observation.stats_rows = rows - observation.stats_first_row;
        SeqSignals s;
        s.observe = &observation;
        return s;
      });
      for (int h = 0; h < o.n_heads; ++h) {
        for (int row = total - ring; row < total; ++row) {
          double want[8];
          rotate(rig.query(row, h), 8, half_layout, 0.1, row, want);
          for (int d = 0; d < 8; ++d)
            ASSERT_NEAR(
                kept[static_cast<size_t>(((position + row) % ring * o.n_heads + h) * 8 + d)],
                want[d], 2e-6);
        }
        for (int f = 0; f < bands; ++f) {
          double sum_re = 0, sum_im = 0, sum_abs = 0;
          for (int row = from; row < total; ++row) {
            const float* q = rig.query(row, h);
            const double a = half_layout ? q[f] : q[2 * f],
                         b = half_layout ? q[f + 4] : q[2 * f + 1];
            sum_re += a, sum_im += b, sum_abs += std::hypot(a, b);
          }
          const auto at = static_cast<size_t>(h * bands + f);
          // Sums of floats in double, in the same order: exact but for |.|.
          EXPECT_EQ(re[at], sum_re);
          EXPECT_EQ(im[at], sum_im);
          EXPECT_NEAR(abs[at], sum_abs, 1e-12);
        }
      }
    }
  }
}

constexpr int kBefore = 700;

// Kills slots of both heads' first kBefore: [kv head][slot].
std::vector<std::vector<bool>> kill_slots(Rig& rig) {
  std::mt19937 rng(3);
  std::vector<std::vector<bool>> dead(2, std::vector<bool>(kBefore));
  rig.live.assign(2, std::vector<uint32_t>((kBefore + 31) / 32, 0));
  for (size_t h = 0; h < 2; ++h) {
    for (size_t s = 0; s < kBefore; ++s) {
      // A whole chunk, a whole block that is given back, and every other slot or so.
      const bool gone = (s >= 256 && s < 512) || (s >= 32 && s < 48) || rng() % 2 == 0;
      dead[h][s] = gone;
      if (!gone) rig.live[h][s / 32] |= 1u << (s % 32);
    }
    // What lies in dead slots does not matter.
    rig.blocks(static_cast<int>(h))[2] = kNoBlock;
  }
  return dead;
}

// Low bits of `rows` rows with all slots below kBefore visible, but for those that are dead.
void expect_low_bits(Rig& rig, size_t kv, const std::vector<bool>& dead, const Observed& seen,
                     int rows) {
  const auto n_dead = static_cast<int>(std::count(dead.begin(), dead.end(), true));
  for (int r = 0; r < rows; ++r) {
    std::vector<double> mean(static_cast<size_t>(kBefore + r + 1), 0.0);
    for (int g = 0; g < rig.group(); ++g) {
      const auto p = rig.probabilities(kBefore + r, static_cast<int>(kv) * rig.group() + g, dead);
      for (size_t i = 0; i < p.size(); ++i) mean[i] += p[i] / rig.group();
    }
    const double limit = 1.0 / (kBefore + r + 1 - n_dead);
    for (size_t i = 0; i < mean.size(); ++i) {
      if ((i < kBefore && dead[i]) || std::abs(mean[i] - limit) < 1e-2 * limit) continue;
      ASSERT_EQ(seen.bits[kv][i] >> ((kBefore + r) % 64) & 1, uint64_t{mean[i] < limit})
          << "slot " << i << " row " << r;
    }
  }
}

// Marked slots are neither read nor counted; the step's own rows always are.
void check_dead_slots(DType type, int threads, bool history) {
  RigOptions o{.dtype = type, .threads = threads};
  Rig rig(o);
  rig.step(kBefore);
  const auto dead = kill_slots(rig);
  Observed seen(o, history ? 64 : 0, 1, 4096);
  const int rows = 3;
  const SeqSignals s = seen.rows(0, rows, false, kBefore);
  const auto out = rig.step(rows, &s);
  for (int h = 0; h < o.n_heads; ++h) {
    const int kv = h / rig.group();
    for (int r = 0; r < rows; ++r) {
      const auto p = rig.probabilities(kBefore + r, h, dead[static_cast<size_t>(kv)]);
      const auto want = rig.mix(p, kv);
      for (int d = 0; d < o.head_dim; ++d)
        ASSERT_NEAR(out[static_cast<size_t>((r * o.n_heads + h) * o.head_dim + d)],
                    want[static_cast<size_t>(d)], type == DType::f32 ? 2e-5 : 2e-2);
    }
  }
  for (size_t h = 0; h < 2; ++h) {
    double sum = 0;
    for (size_t i = 0; i < kBefore + rows; ++i) {
      sum += seen.mass[h][i];
      if (i < kBefore && dead[h][i]) {
        ASSERT_EQ(seen.mass[h][i], 0.0f);
      }
    }
    EXPECT_NEAR(sum, rows, 2e-3 * rows);
    if (history) expect_low_bits(rig, h, dead[h], seen, rows);
  }
}

TEST(LiveMask, DeadSlotsAreAsIfTheyWereNotThere) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int threads : {1, 3}) {
      for (const bool history : {false, true}) {
        SCOPED_TRACE(::testing::Message() << threads << " threads, history " << history);
        check_dead_slots(type, threads, history);
      }
    }
  }
}

TEST(LiveMask, AllLiveChangesNoBit) {
  const RigOptions o{.threads = 2};
  Rig a(o), b(o);
  b.live.assign(2, std::vector<uint32_t>(40, ~0u));
  for (const int rows : {300, 1, 2}) ASSERT_EQ(a.step(rows), b.step(rows));
}

// Logits of sinks come from the query at position - shift, all others from the query's own; the
// cached keys stay rotated as they were.
TEST(Reindex, SinksSeeAShiftedQuery) {
  for (const int64_t sinks : {4, 16, 256, 300}) {
    for (const bool half_layout : {true, false}) {
      RigOptions o{.head_dim = 64, .dtype = DType::f32, .threads = 2};
      Rig rig(o);
      rig.half_layout = half_layout;
      const double angle_step = 0.003;
      const int before = 600, rows = 3;
      set_angles(rig, 0, before, angle_step, rig.cos_, rig.sin_);
      rig.step(before);
      // The rows come 1000 positions later: slots [sinks, before) lie that far from the sinks.
      const int64_t shift = 700, position = before + 1000;
      set_angles(rig, position, rows, angle_step, rig.cos_, rig.sin_);
      set_angles(rig, position - shift, rows, angle_step, rig.sink_cos_, rig.sink_sin_);
      Observed seen(o);
      SeqSignals s = seen.rows(0, rows);
      s.sink_slots = sinks;
      s.sink_shift = shift;
      const auto out = rig.step(rows, &s);
      std::vector<double> mass(static_cast<size_t>(before + rows), 0.0);
      for (int h = 0; h < o.n_heads; ++h) {
        const int kv = h / rig.group();
        for (int r = 0; r < rows; ++r) {
          double own[64], shifted[64], key[64];
          rotate(rig.query(before + r, h), 64, half_layout, angle_step, position + r, own);
          rotate(rig.query(before + r, h), 64, half_layout, angle_step, position + r - shift,
                 shifted);
          std::vector<double> p(static_cast<size_t>(before + r + 1));
          double sum = 0;
          for (int64_t i = 0; i < before + r + 1; ++i) {
            rotate(rig.key(i, kv), 64, half_layout, angle_step,
                   i < before ? i : position + i - before, key);
            double dot = 0;
            for (int d = 0; d < 64; ++d) dot += (i < sinks ? shifted : own)[d] * key[d];
            sum += p[static_cast<size_t>(i)] = std::exp(dot / 8);
          }
          for (size_t i = 0; i < p.size(); ++i) {
            p[i] /= sum;
            if (kv == 0) mass[i] += p[i] / rig.group();
          }
          const auto want = rig.mix(p, kv);
          for (int d = 0; d < 64; ++d)
            ASSERT_NEAR(out[static_cast<size_t>((r * o.n_heads + h) * 64 + d)],
                        want[static_cast<size_t>(d)], 1e-4)
                << "sinks " << sinks;
        }
      }
      for (size_t i = 0; i < mass.size(); ++i) ASSERT_NEAR(seen.mass[0][i], mass[i], 1e-5);
    }
  }
}

TEST(Reindex, NoShiftChangesNoBit) {
  const RigOptions o{};
  Rig a(o), b(o);
  for (const int rows : {300, 1}) {
    SeqSignals s;
    s.sink_slots = 4;
    ASSERT_EQ(a.step(rows), b.step(rows, &s));
  }
}

}  // namespace
}  // namespace pagefold
