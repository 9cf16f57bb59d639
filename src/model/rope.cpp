#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace pagefold {
namespace {

constexpr int64_t kKeptPositions = 16384;
constexpr double kTau = 2.0 * std::numbers::pi;

double llama3_frequency(double f, const RopeConfig& c) {
  const double wavelength = kTau / f;
  if (wavelength > c.original_context / c.low_freq_factor) return f / c.factor;
  if (wavelength < c.original_context / c.high_freq_factor) return f;
  const double smooth = (c.original_context / wavelength - c.low_freq_factor) /
                        (c.high_freq_factor - c.low_freq_factor);
  return (1 - smooth) * f / c.factor + smooth * f;
}

// The dim whose wavelength turns `rotations` times within the original context.
double yarn_dim(double rotations, const RopeConfig& c) {
  return c.rot * std::log(c.original_context / (rotations * kTau)) / (2 * std::log(c.theta));
}

void apply_yarn(const RopeConfig& c, RopeFrequencies& out) {
  double low = yarn_dim(c.beta_fast, c), high = yarn_dim(c.beta_slow, c);
  if (c.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, c.rot - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < out.frequency.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double f = out.frequency[i];
    out.frequency[i] = f / c.factor * ramp + f * (1 - ramp);
  }
  const double natural = c.factor <= 1 ? 1.0 : 0.1 * std::log(c.factor) + 1.0;
  out.magnitude = c.attention_factor > 0 ? c.attention_factor : natural;
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& c) {
  RopeFrequencies out;
  out.frequency.resize(static_cast<size_t>(c.rot / 2));
  for (size_t i = 0; i < out.frequency.size(); ++i) {
    double f = std::pow(c.theta, -2.0 * static_cast<double>(i) / c.rot);
    if (!c.divisors.empty()) f /= c.divisors[i];
    if (c.kind == RopeKind::linear) f /= c.factor;
    if (c.kind == RopeKind::llama3) f = llama3_frequency(f, c);
    out.frequency[i] = f;
  }
  if (c.kind == RopeKind::yarn) apply_yarn(c, out);
  return out;
}

RopeTable::RopeTable(RopeFrequencies frequencies) : f_(std::move(frequencies)) {
  // Address space only: pages are touched as positions come, and no step ever reallocates.
  kept_.reserve(static_cast<size_t>(kKeptPositions) * 2 * f_.frequency.size());
}

void RopeTable::compute(int64_t position, float* cos, float* sin) const {
  for (size_t i = 0; i < f_.frequency.size(); ++i) {
    // In double: a float angle at position 100,000 would be off by a hundredth of a radian.
    const double angle = static_cast<double>(position) * f_.frequency[i];
    cos[i] = static_cast<float>(std::cos(angle) * f_.magnitude);
    sin[i] = static_cast<float>(std::sin(angle) * f_.magnitude);
  }
}

void RopeTable::prepare(std::span<const int64_t> positions) { fill(positions, own_); }

void RopeTable::prepare_sinks(std::span<const int64_t> positions) { fill(positions, sinks_); }

void RopeTable::fill(std::span<const int64_t> positions, Angles& out) {
  const size_t half = f_.frequency.size();
  out.cos.resize(positions.size() * half);
  out.sin.resize(positions.size() * half);
  for (size_t r = 0; r < positions.size(); ++r) {
    const int64_t p = positions[r];
    float* cos = out.cos.data() + r * half;
    float* sin = out.sin.data() + r * half;
    if (p >= kKeptPositions) {
      compute(p, cos, sin);
      continue;
    }
    for (int64_t known = static_cast<int64_t>(kept_.size() / (2 * half)); known <= p; ++known) {
      kept_.resize(static_cast<size_t>(known + 1) * 2 * half);
      float* row = kept_.data() + static_cast<size_t>(known) * 2 * half;
      compute(known, row, row + half);
    }
    const float* row = kept_.data() + static_cast<size_t>(p) * 2 * half;
    std::memcpy(cos, row, half * sizeof(float));
    std::memcpy(sin, row + half, half * sizeof(float));
  }
}

}  // namespace pagefold
