// What a step observes besides mass, and what changes what it reads: history bits, query ring and
// statistics, live masks, re-indexed sinks.
#include "backend/attention_rig.h"

namespace pagefold {
namespace {

std::vector<float> run(Rig& rig, int total, int chunk, const auto& signals_of) {
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

// Bits of slot `s` after rows [first, last): newest in bit 0; rows before the slot's own shift
// nothing in. unsure: a bit whose p is too close to the threshold to tell.
struct Bits {
  std::vector<int> bits;  // newest first; -1 unsure
};

Bits expected_history(Rig& rig, int kv, int64_t slot, int first, int last,
                      const std::vector<std::vector<double>>& mean) {
  Bits out;
  for (int row = last - 1; row >= std::max<int64_t>(first, slot); --row) {
    const double p = mean[static_cast<size_t>(row)][static_cast<size_t>(slot)];
    const double limit = 1.0 / (row + 1);
    out.bits.push_back(std::abs(p - limit) < 1e-4 * limit ? -1 : p < limit);
  }
  (void)rig, (void)kv;
  return out;
}

TEST(History, BitsOfEveryObservedRow) {
  const int total = 330, first = 40;
  for (const int chunk : {1, 50, 330}) {
    RigOptions o{.dtype = DType::f32, .threads = 2};
    Rig rig(o);
    const int words = 3;
    Observed seen(o, words);
    run(rig, total, chunk, [&](int at, int rows) {
      SeqSignals s;
      s.mass_row = std::clamp(first - at, 0, rows);
      s.mass_rows = rows - s.mass_row;
      s.history_words = words;
      s.history = seen.history_at.data();
      return s;
    });
    for (int kv = 0; kv < o.n_kv_heads; ++kv) {
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
      for (int64_t slot = 0; slot < total; ++slot) {
        const Bits want = expected_history(rig, kv, slot, first, total, mean);
        for (size_t i = 0; i < 64 * words; ++i) {
          const int bit = i < want.bits.size() ? want.bits[i] : 0;
          if (bit < 0) continue;
          const uint64_t word =
              seen.history[static_cast<size_t>(kv)][static_cast<size_t>(slot * words) + i / 64];
          ASSERT_EQ(word >> (i % 64) & 1, static_cast<uint64_t>(bit))
              << "chunk " << chunk << " slot " << slot << " bit " << i;
        }
      }
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
      const int total = 40, ring = 7, bands = 4, from = 11;
      std::vector<float> kept(static_cast<size_t>(o.n_heads * ring * o.head_dim));
      std::vector<double> re(static_cast<size_t>(o.n_heads * bands)), im = re, abs = re;
      run(rig, total, chunk, [&](int at, int rows) {
        set_angles(rig, at, rows, 0.1, rig.cos_, rig.sin_);
        SeqSignals s;
        s.ring_rows = ring;
        s.ring_next = at % ring;
        s.query_ring = kept.data();
        s.stats_row = std::clamp(from - at, 0, rows);
        s.stats_re = re.data();
        s.stats_im = im.data();
        s.stats_abs = abs.data();
        return s;
      });
      for (int h = 0; h < o.n_heads; ++h) {
        for (int row = total - ring; row < total; ++row) {
          double want[8];
          rotate(rig.query(row, h), 8, half_layout, 0.1, row, want);
          for (int d = 0; d < 8; ++d)
            ASSERT_NEAR(kept[static_cast<size_t>((h * ring + row % ring) * 8 + d)], want[d], 2e-6);
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

// Marked slots are neither read nor counted; the step's own rows always are.
TEST(LiveMask, DeadSlotsAreAsIfTheyWereNotThere) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int threads : {1, 3}) {
      RigOptions o{.dtype = type, .threads = threads};
      Rig rig(o);
      const int before = 700, words = 1;
      rig.step(before);
      std::mt19937 rng(3);
      std::vector<std::vector<bool>> dead(2, std::vector<bool>(static_cast<size_t>(before)));
      std::vector<std::vector<uint32_t>> live(2, std::vector<uint32_t>((before + 31) / 32, 0));
      for (size_t h = 0; h < 2; ++h) {
        for (size_t s = 0; s < before; ++s) {
          // A whole chunk, a whole block that is given back, and every other slot or so.
          const bool gone = (s >= 256 && s < 512) || (s >= 32 && s < 48) || rng() % 2 == 0;
          dead[h][s] = gone;
          if (!gone) live[h][s / 32] |= 1u << (s % 32);
        }
        // What lies in dead slots does not matter.
        rig.blocks(static_cast<int>(h))[2] = kNoBlock;
      }
      const uint32_t* masks[] = {live[0].data(), live[1].data()};
      Observed seen(o, words);
      const int rows = 3;
      SeqSignals s = seen.rows(0, rows);
      s.history_words = words;
      s.history = seen.history_at.data();
      s.live = masks;
      const auto out = rig.step(rows, &s);
      for (int h = 0; h < o.n_heads; ++h) {
        const int kv = h / rig.group();
        for (int r = 0; r < rows; ++r) {
          const auto p = rig.probabilities(before + r, h, dead[static_cast<size_t>(kv)]);
          const auto want = rig.mix(p, kv);
          for (int d = 0; d < o.head_dim; ++d)
            ASSERT_NEAR(out[static_cast<size_t>((r * o.n_heads + h) * o.head_dim + d)],
                        want[static_cast<size_t>(d)], type == DType::f32 ? 2e-5 : 2e-2);
        }
      }
      for (size_t h = 0; h < 2; ++h) {
        double sum = 0;
        int bits = 0;
        for (size_t i = 0; i < before + rows; ++i) {
          sum += seen.mass[h][i];
          if (i < before && dead[h][i]) {
            ASSERT_EQ(seen.mass[h][i], 0.0f);
            ASSERT_EQ(seen.history[h][i], 0u);
          } else {
            bits += seen.history[h][i] != 0;
          }
        }
        EXPECT_NEAR(sum, rows, 2e-3 * rows);
        EXPECT_GT(bits, 50);
      }
    }
  }
}

TEST(LiveMask, AllLiveChangesNoBit) {
  const RigOptions o{.threads = 2};
  Rig a(o), b(o);
  std::vector<uint32_t> ones(40, ~0u);
  const uint32_t* masks[] = {ones.data(), ones.data()};
  for (const int rows : {300, 1, 2}) {
    SeqSignals s;
    s.live = masks;
    ASSERT_EQ(a.step(rows), b.step(rows, &s));
  }
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
