// Caches of fewer bits through the whole backend: what is read back, attended to, bounded and
// counted, against sums in double over the keys as they are cached.
#include "backend/attention_rig.h"
#include "backend/cpu/hadamard.h"
#include "base/half.h"

namespace pagefold {
namespace {

struct KeyType {
  DType type;
  int group;
  double error;  // of a key read back, as a length relative to the key's
};
// fp8: half a step of 1/8 or 1/4 at most; integers: half a step of the range, over all dims.
constexpr KeyType kKeyTypes[] = {{DType::fp8_e4m3, 0, 0.04}, {DType::fp8_e5m2, 0, 0.08},
                                 {DType::int8, 0, 0.02},     {DType::int8, 32, 0.02},
                                 {DType::int4, 0, 0.15},     {DType::int4, 32, 0.13}};

std::string named(const KeyType& k, int dim) {
  return fmt::format("{} group {} head_dim {}", dtype_name(k.type), k.group, dim);
}

double length(const float* x, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += double{x[i]} * x[i];
  return std::sqrt(sum);
}

// A query as it meets int4 keys: rotated, rounded to 8 bits (kernels/paged.h), turned back here.
std::vector<float> met(const RigOptions& o, const float* q) {
  std::vector<float> out(q, q + o.head_dim);
  if (o.dtype != DType::int4) return out;
  cpu::rotate_hadamard(out.data(), o.head_dim, 1);
  float largest = 0;
  for (const float x : out) largest = std::max(largest, std::abs(x));
  for (float& x : out) x = std::nearbyint(x / largest * 127) * largest / 127;
  cpu::rotate_hadamard(out.data(), o.head_dim, 1);
  return out;
}

// Output and probabilities of a query over cached keys and the rig's own values.
struct Attended {
  std::vector<double> p, out;
};
Attended attend(Rig& rig, const std::vector<float>& keys, const float* query, int64_t row, int kv) {
  const RigOptions& o = rig.options();
  const std::vector<float> q = met(o, query);
  Attended a;
  double most = -1e30, sum = 0;
  for (int64_t s = 0; s <= row; ++s) {
    double dot = 0;
    for (int d = 0; d < o.head_dim; ++d)
      dot += double{q[static_cast<size_t>(d)]} * keys[static_cast<size_t>(s * o.head_dim + d)];
    a.p.push_back(dot / std::sqrt(double{static_cast<double>(o.head_dim)}));
    most = std::max(most, a.p.back());
  }
  for (double& p : a.p) sum += p = std::exp(p - most);
  for (double& p : a.p) p /= sum;
  a.out.assign(static_cast<size_t>(o.head_dim), 0.0);
  for (int64_t s = 0; s <= row; ++s) {
    const float* v = rig.query(s, o.n_heads + o.n_kv_heads + kv);
    for (int d = 0; d < o.head_dim; ++d)
      a.out[static_cast<size_t>(d)] += a.p[static_cast<size_t>(s)] * v[d];
  }
  return a;
}

// Keys that share a large dimension, as biases make them. The error is bounded for those that are
// stored as they are; of centred ones as many lie far from the centre here as near.
void check_keys(const KeyType& k, int dim, bool centre, bool rotate) {
  RigOptions o{.head_dim = dim, .dtype = k.type, .threads = 2, .max_slots = 320};
  o.v_dtype = DType::f32;
  o.group = k.group;
  o.centre = centre;
  o.hadamard = rotate;
  if (dtype_is_fp8(k.type)) o.k_scale = 0.37f;
  Rig rig(o);
  for (int row = 0; row < o.max_slots; ++row)
    for (int kv = 0; kv < o.n_kv_heads; ++kv) rig.key(row, kv)[5] += 8;
  Observed seen(o);
  const SeqSignals s = seen.rows(0, 3);
  rig.step(300);
  const auto out = rig.step(3, &s);
  for (int kv = 0; kv < o.n_kv_heads; ++kv) {
    const auto keys = rig.cached_keys(kv);
    for (int64_t row = 0; row < rig.len(); ++row) {
      std::vector<float> error(keys.begin() + row * dim, keys.begin() + (row + 1) * dim);
      for (int d = 0; d < dim; ++d) error[static_cast<size_t>(d)] -= rig.key(row, kv)[d];
      const double most = k.error * (centre ? 2.5 : 1.0) * length(rig.key(row, kv), dim);
      ASSERT_LT(length(error.data(), dim), most) << row;
    }
    std::vector<double> mass(300, 0.0);
    for (int r = 0; r < 3; ++r) {
      for (int g = 0; g < rig.group(); ++g) {
        const int h = kv * rig.group() + g;
        const Attended want = attend(rig, keys, rig.query(300 + r, h), 300 + r, kv);
        for (size_t i = 0; i < mass.size(); ++i) mass[i] += want.p[i] / rig.group();
        for (int d = 0; d < dim; ++d)
          ASSERT_NEAR(out[static_cast<size_t>((r * o.n_heads + h) * dim + d)],
                      want.out[static_cast<size_t>(d)], 5e-4);
      }
    }
    // Four bits and a zero point are large sums that nearly cancel: more of float32 is lost.
    const double most = k.type == DType::int4 ? 5e-5 : 2e-5;
    for (size_t i = 0; i < mass.size(); ++i)
      ASSERT_NEAR(seen.mass[static_cast<size_t>(kv)][i], mass[i], most);
  }
}

TEST(KvTypes, KeysComeBackAndAreWhatAttentionSees) {
  for (const KeyType& k : kKeyTypes) {
    for (const int dim : {64, 80, 96}) {
      for (const bool centre : {false, true}) {
        SCOPED_TRACE(named(k, dim) + (centre ? " centred" : ""));
        check_keys(k, dim, centre, KvFormat(k.type).hadamard_keys);
        if (dtype_is_fp8(k.type)) check_keys(k, dim, centre, false);
      }
    }
  }
}

// Powers of two scale exactly: a cache with scales holds what one without holds of the scaled rows.
TEST(KvTypes, Fp8ScalesOfKeysAndValues) {
  for (const DType type : {DType::fp8_e4m3, DType::fp8_e5m2}) {
    RigOptions o{.dtype = type, .threads = 2, .max_slots = 300};
    Rig plain(o);
    o.k_scale = 4;
    o.v_scale = 0.25f;
    Rig scaled(o);
    for (int row = 0; row < o.max_slots; ++row) {
      for (int kv = 0; kv < o.n_kv_heads; ++kv) {
        float *key = scaled.key(row, kv), *value = scaled.key(row, o.n_kv_heads + kv);
        for (int d = 0; d < o.head_dim; ++d) key[d] *= 4, value[d] *= 0.25f;
      }
      for (int d = 0; d < o.n_heads * o.head_dim; ++d) scaled.query(row, 0)[d] *= 0.25f;
    }
    for (const int rows : {280, 1, 3}) {
      const auto want = plain.step(rows), got = scaled.step(rows);
      for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], 0.25f * want[i]);
    }
    const auto want = plain.cached_keys(1), got = scaled.cached_keys(1);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], 4 * want[i]);
  }
}

TEST(KvTypes, Fp8CutsOffAndCounts) {
  for (const DType type : {DType::fp8_e4m3, DType::fp8_e5m2}) {
    const float most = type == DType::fp8_e4m3 ? 448 : 57344;
    RigOptions o{.dtype = type, .max_slots = 64};
    o.k_scale = 0.5f;
    o.v_scale = 2;
    Rig rig(o);
    rig.key(3, 0)[7] = 0.5f * most;           // just fits
    rig.key(3, 1)[8] = -0.6f * most;          // is cut off
    rig.key(5, o.n_kv_heads)[9] = 2 * most;   // a value that fits
    rig.key(5, o.n_kv_heads + 1)[9] = 1e30f;  // and one that does not
    rig.step(20);
    EXPECT_EQ(rig.backend().kv_saturated(), 2u);
    EXPECT_EQ(rig.cached_keys(0)[3 * 64 + 7], 0.5f * most);
    EXPECT_EQ(rig.cached_keys(1)[3 * 64 + 8], -0.5f * most);
  }
  Rig none(RigOptions{.dtype = DType::int8, .max_slots = 64});
  none.key(3, 0)[7] = 1e30f;
  none.step(20);
  EXPECT_EQ(none.backend().kv_saturated(), 0u);
}

// Values alone: keys are exact, so probabilities are; what is left is the rounding of values.
TEST(KvTypes, ValuesOfEveryType) {
  for (const KeyType& v : kKeyTypes) {
    for (const int dim : {64, 80, 96}) {
      SCOPED_TRACE(named(v, dim));
      RigOptions o{.head_dim = dim, .dtype = DType::f32, .threads = 2, .max_slots = 300};
      o.v_dtype = v.type;
      o.group = v.group;
      if (dtype_is_fp8(v.type)) o.v_scale = 0.37f;
      Rig rig(o);
      rig.step(280);
      const auto out = rig.step(1);
      double error = 0, sum = 0;
      for (int h = 0; h < o.n_heads; ++h) {
        const int kv = h / rig.group();
        const Attended want = attend(rig, rig.cached_keys(kv), rig.query(280, h), 280, kv);
        for (int d = 0; d < dim; ++d) {
          const double w = want.out[static_cast<size_t>(d)];
          error += std::pow(out[static_cast<size_t>(h * dim + d)] - w, 2);
          sum += w * w;
        }
      }
      EXPECT_LT(std::sqrt(error / sum), v.error);
    }
  }
}

// Bounds of a block hold for the keys that attention sees, whatever they are stored as.
TEST(KvTypes, PageBoundsHoldForTheCachedKeys) {
  for (const KeyType& k : kKeyTypes) {
    for (const int block_size : {16, 32}) {
      SCOPED_TRACE(named(k, block_size));
      RigOptions o{.dtype = k.type,
                   .block_size = block_size,
                   .threads = 2,
                   .bounds = true,
                   .max_slots = 150};
      o.group = k.group;
      o.hadamard = KvFormat(k.type).hadamard_keys;
      if (dtype_is_fp8(k.type)) o.k_scale = 0.5f;
      Rig rig(o);
      for (const int rows : {5, 70, 1, 1, 30}) rig.step(rows);
      for (int kv = 0; kv < o.n_kv_heads; ++kv) {
        const auto keys = rig.cached_keys(kv);
        for (int64_t b = 0; b * block_size < rig.len(); ++b) {
          const BlockId id = rig.blocks(kv)[static_cast<size_t>(b)];
          std::vector<float> lo(64, INFINITY), hi(64, -INFINITY);
          for (int64_t s = b * block_size; s < std::min(rig.len(), (b + 1) * block_size); ++s) {
            float key[64];  // in the stored domain
            for (int d = 0; d < 64; ++d) key[d] = keys[static_cast<size_t>(s * 64 + d)] / o.k_scale;
            if (*o.hadamard) cpu::rotate_hadamard(key, 64, 1);
            for (size_t d = 0; d < 64; ++d)
              lo[d] = std::min(lo[d], key[d]), hi[d] = std::max(hi[d], key[d]);
          }
          for (size_t d = 0; d < 64; ++d) {
            // bfloat16, rounded outward: at most a step of 2^-7 away.
            const float low = bf16_to_f32(rig.backend().page_bounds().lo(id)[d]);
            const float high = bf16_to_f32(rig.backend().page_bounds().hi(id)[d]);
            ASSERT_LE(low, lo[d] + 2e-6f);
            ASSERT_GE(high, hi[d] - 2e-6f);
            ASSERT_NEAR(low, lo[d], std::abs(lo[d]) / 128 + 2e-6f);
            ASSERT_NEAR(high, hi[d], std::abs(hi[d]) / 128 + 2e-6f);
          }
        }
      }
    }
  }
}

TEST(KvTypes, QuestReadsWhatItWouldOfTheDenseCache) {
  for (const KeyType& k : kKeyTypes) {
    SCOPED_TRACE(named(k, 64));
    RigOptions o{.dtype = k.type, .threads = 2, .bounds = true, .max_slots = 500};
    o.group = k.group;
    o.hadamard = KvFormat(k.type).hadamard_keys;
    Rig all(o), some(o);
    all.step(480);
    some.step(480);
    // One block per KV head holds keys that the query points to: it must be among the chosen.
    SeqSignals s;
    int64_t read[2] = {0, 0};
    s.quest_first_layer = 0;
    s.quest_blocks_read = read;
    s.quest_blocks = 31;
    ASSERT_EQ(all.step(1), some.step(1, &s)) << "31 of 31 blocks";
    EXPECT_EQ(read[0], 2 * 31);
  }
}

// Sinks are attended with their own query, which is rotated like the keys. What centred keys lack
// differs between the two queries.
void check_sinks(DType type, bool centre) {
  RigOptions o{.dtype = type, .threads = 2, .max_slots = 320};
  o.v_dtype = DType::f32;
  o.centre = centre;
  o.hadamard = KvFormat(type).hadamard_keys;
  Rig rig(o);
  rig.step(300);
  const int half = o.head_dim / 2;
  for (int f = 0; f < half; ++f) {
    rig.sink_cos_[static_cast<size_t>(f)] = std::cos(0.3f * static_cast<float>(f));
    rig.sink_sin_[static_cast<size_t>(f)] = std::sin(0.3f * static_cast<float>(f));
  }
  SeqSignals s;
  s.sink_slots = 20;
  s.sink_shift = 5;
  const auto out = rig.step(1, &s);
  for (int h = 0; h < o.n_heads; ++h) {
    const int kv = h / rig.group();
    auto keys = rig.cached_keys(kv);
    // Turning the query one way is turning the sinks' keys the other way.
    for (int64_t slot = 0; slot < 20; ++slot) {
      float* key = keys.data() + slot * o.head_dim;
      for (int f = 0; f < half; ++f) {
        const double c = std::cos(0.3 * f), sn = std::sin(0.3 * f), a = key[f], b = key[f + half];
        key[f] = static_cast<float>(a * c + b * sn);
        key[f + half] = static_cast<float>(b * c - a * sn);
      }
    }
    const Attended want = attend(rig, keys, rig.query(300, h), 300, kv);
    // The sinks' own query is rounded to 8 bits for int4 keys, which met() of the other is not.
    const double most = type == DType::int4 ? 1e-2 : 5e-4;
    for (int d = 0; d < o.head_dim; ++d)
      ASSERT_NEAR(out[static_cast<size_t>(h * o.head_dim + d)], want.out[static_cast<size_t>(d)],
                  most);
  }
}

TEST(KvTypes, SinksOfRotatedKeys) {
  for (const DType type : {DType::f32, DType::int8, DType::fp8_e4m3, DType::int4}) {
    for (const bool centre : {false, true}) check_sinks(type, centre);
  }
}

// Policies get keys and queries of the model, not those of the store.
TEST(KvTypes, ScoresSeeTheCachedKeys) {
  for (const KeyType& k : kKeyTypes) {
    SCOPED_TRACE(named(k, 64));
    RigOptions o{.dtype = k.type, .max_slots = 64};
    o.group = k.group;
    o.hadamard = KvFormat(k.type).hadamard_keys;
    o.centre = true;
    if (dtype_is_fp8(k.type)) o.k_scale = 0.37f;
    Rig rig(o);
    std::vector<float> kept(static_cast<size_t>(o.n_heads * 4 * o.head_dim));
    const QueryRing ring{kept.data(), 4};
    Observation observation;
    observation.ring = &ring;
    SeqSignals s;
    s.observe = &observation;
    rig.step(50, &s);
    for (int h = 0; h < o.n_heads; ++h)
      for (int d = 0; d < o.head_dim; ++d)
        ASSERT_EQ(kept[static_cast<size_t>((49 % 4 * o.n_heads + h) * o.head_dim + d)],
                  rig.query(49, h)[d]);
    const auto keys = rig.cached_keys(1);
    const auto q = normal_values(64, 9);
    std::vector<float> got(50), re(32, 0.0f), im(32, 0.0f), norm(32, 0.0f);
    const TableView table{rig.blocks(1).data(), 50, 0, nullptr};
    rig.backend().key_logits(0, 1, table, 50, q.data(), 1, 0.5f, got.data());
    std::vector<float> scores(50);
    re[3] = 2, im[4] = -1, norm[5] = 0.5f;
    float* heads[] = {scores.data()};
    rig.backend().score_keys(0, 1, table, 50, {re.data(), im.data(), norm.data(), 1, 32, true},
                             heads);
    for (size_t slot = 0; slot < 50; ++slot) {
      const float* key = keys.data() + slot * 64;
      double dot = 0;
      for (size_t d = 0; d < 64; ++d) dot += double{q[d]} * key[d];
      ASSERT_NEAR(got[slot], 0.5 * dot, 1e-4);
      ASSERT_NEAR(scores[slot], 2.0 * key[3] - key[4 + 32] + 0.5 * std::hypot(key[5], key[5 + 32]),
                  1e-4);
    }
  }
}

// Keys are averaged as they are before their rotation, without the first four of a sequence.
TEST(KeyCentre, MeansOfUnrotatedKeys) {
  for (const int chunk : {1, 3, 40}) {
    RigOptions o{.dtype = DType::int8, .threads = 2, .max_slots = 48};
    Rig rig(o);
    for (size_t i = 0; i < rig.cos_.size(); ++i) rig.cos_[i] = 0.6f, rig.sin_[i] = 0.8f;
    rig.backend().begin_key_means();
    while (rig.len() < 40) rig.step(std::min(chunk, 40 - static_cast<int>(rig.len())));
    const auto means = rig.backend().take_key_means();
    ASSERT_EQ(means.size(), 2u * 64);
    for (int kv = 0; kv < 2; ++kv) {
      for (int d = 0; d < 64; ++d) {
        double sum = 0;
        for (int row = 4; row < 40; ++row) sum += double{rig.key(row, kv)[d]};
        ASSERT_NEAR(means[static_cast<size_t>(kv * 64 + d)], sum / 36, 1e-6);
      }
    }
    EXPECT_TRUE(rig.backend().take_key_means().empty());
  }
}

TEST(Hadamard, IsItsOwnInverseAndKeepsProducts) {
  for (const int dim : {8, 24, 64, 80, 96, 128, 256, 512}) {
    const auto x = normal_values(static_cast<size_t>(dim), 1),
               y = normal_values(static_cast<size_t>(dim), 2);
    auto a = x, b = y;
    cpu::rotate_hadamard(a.data(), dim, 1);
    cpu::rotate_hadamard(b.data(), dim, 1);
    double before = 0, after = 0;
    for (size_t d = 0; d < x.size(); ++d)
      before += double{x[d]} * y[d], after += double{a[d]} * b[d];
    EXPECT_NEAR(before, after, 1e-5 * dim);
    EXPECT_NE(a, x);
    // By the definition: H[i][j] = (-1)^popcount(i & j) / sqrt(size) in each block.
    const int size = dim & -dim;
    for (int i = 0; i < dim; ++i) {
      double sum = 0;
      for (int j = 0; j < size; ++j) {
        const int sign = __builtin_popcount(static_cast<unsigned>(i % size & j)) % 2 == 0 ? 1 : -1;
        sum += sign * x[static_cast<size_t>(i / size * size + j)];
      }
      ASSERT_NEAR(a[static_cast<size_t>(i)], sum / std::sqrt(size), 1e-5);
    }
    cpu::rotate_hadamard(a.data(), dim, 1);
    for (size_t d = 0; d < x.size(); ++d) ASSERT_NEAR(a[d], x[d], 1e-5);
    // A strip of 16 keys at once gives the bits of one at a time.
    std::vector<float> strip(static_cast<size_t>(dim) * 16);
    for (int d = 0; d < dim; ++d)
      for (int lane = 0; lane < 16; ++lane)
        strip[static_cast<size_t>(d * 16 + lane)] =
            x[static_cast<size_t>(d)] * static_cast<float>(1 + lane);
    cpu::rotate_hadamard(strip.data(), dim, 16);
    auto one = x;
    cpu::rotate_hadamard(one.data(), dim, 1);
    for (int d = 0; d < dim; ++d)
      ASSERT_EQ(strip[static_cast<size_t>(d * 16)], one[static_cast<size_t>(d)]);
  }
}

}  // namespace
}  // namespace pagefold
