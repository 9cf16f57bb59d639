#include "kv/calibration.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace pagefold {
namespace {

static_assert(std::endian::native == std::endian::little, "the file format is little endian");
constexpr std::string_view kMagic = "PFCAL01\n";
constexpr uint32_t kMostLayers = 4096, kMostHeads = 4096, kMostBands = 4096, kMostName = 4096;
constexpr double kFrequencyTolerance = 1e-4;

uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : bytes) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  }
  return hash;
}

template <class T>
void append_values(std::string& out, const T* values, size_t n) {
  out.append(reinterpret_cast<const char*>(values), n * sizeof(T));
}

template <class T>
bool take(std::string_view& in, T* values, size_t n) {
  if (in.size() / sizeof(T) < n) return false;
  if (n > 0) std::memcpy(values, in.data(), n * sizeof(T));
  in.remove_prefix(n * sizeof(T));
  return true;
}

bool all_finite(const std::vector<float>& values) {
  for (const float v : values) {
    if (!std::isfinite(v)) return false;
  }
  return true;
}

}  // namespace

void CalibrationStats::finish() {
  re_d.assign(re.begin(), re.end());
  im_d.assign(im.begin(), im.end());
  abs_d.assign(abs.begin(), abs.end());
}

CalibrationStats calibration_from_sums(const KvModel& model, const QuerySums& sums,
                                       std::string name) {
  CalibrationStats s;
  s.n_layers = model.n_layers;
  s.n_heads = model.n_heads;
  s.bands = model.bands();
  s.inv_freq = model.inv_freq;
  s.rows = sums.rows;
  s.model = std::move(name);
  const size_t n = static_cast<size_t>(s.n_layers) * static_cast<size_t>(s.n_heads) *
                   static_cast<size_t>(s.bands);
  const double rows = static_cast<double>(sums.rows > 0 ? sums.rows : 1);
  for (size_t i = 0; i < n; ++i) {
    s.re.push_back(static_cast<float>(sums.re[i] / rows));
    s.im.push_back(static_cast<float>(sums.im[i] / rows));
    s.abs.push_back(static_cast<float>(sums.abs[i] / rows));
  }
  s.finish();
  return s;
}

Status check_calibration(const CalibrationStats& stats, const KvModel& model) {
  if (stats.n_layers != model.n_layers) {
    return bad_input("made for a model of {} layers, this one has {}", stats.n_layers,
                     model.n_layers);
  }
  if (stats.n_heads != model.n_heads) {
    return bad_input("made for a model of {} query heads, this one has {}", stats.n_heads,
                     model.n_heads);
  }
  if (stats.bands != model.bands()) {
    return bad_input("made for {} rotary bands a head, this model has {}", stats.bands,
                     model.bands());
  }
  for (size_t f = 0; f < model.inv_freq.size(); ++f) {
    const double theirs = stats.inv_freq[f], ours = model.inv_freq[f];
    if (!(std::abs(theirs - ours) <= kFrequencyTolerance * std::abs(ours))) {
      return bad_input("rotary frequency {} is {}, this model's is {}", f, theirs, ours);
    }
  }
  return ok_status();
}

std::string write_calibration(const CalibrationStats& s) {
  std::string out(kMagic);
  const uint32_t dims[4] = {static_cast<uint32_t>(s.n_layers), static_cast<uint32_t>(s.n_heads),
                            static_cast<uint32_t>(s.bands), static_cast<uint32_t>(s.model.size())};
  append_values(out, dims, 4);
  const auto rows = static_cast<uint64_t>(s.rows);
  append_values(out, &rows, 1);
  out += s.model;
  append_values(out, s.inv_freq.data(), s.inv_freq.size());
  append_values(out, s.re.data(), s.re.size());
  append_values(out, s.im.data(), s.im.size());
  append_values(out, s.abs.data(), s.abs.size());
  const uint64_t hash = fnv1a(out);
  append_values(out, &hash, 1);
  return out;
}

Result<CalibrationStats> read_calibration(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return bad_data("not a pagefold calibration (it does not begin with PFCAL01)");
  }
  std::string_view in = bytes.substr(kMagic.size());
  uint32_t dims[4] = {};
  uint64_t rows = 0;
  if (!take(in, dims, 4) || !take(in, &rows, 1)) return bad_data("calibration: cut in its header");
  if (dims[0] == 0 || dims[0] > kMostLayers || dims[1] == 0 || dims[1] > kMostHeads ||
      dims[2] == 0 || dims[2] > kMostBands || dims[3] > kMostName || rows > uint64_t{1} << 62) {
    return bad_data("calibration: sizes out of range ({} layers, {} heads, {} bands)", dims[0],
                    dims[1], dims[2]);
  }
  const uint64_t n = uint64_t{dims[0]} * dims[1] * dims[2];
  const uint64_t expected = uint64_t{dims[3]} + 8 * uint64_t{dims[2]} + 12 * n + 8;
  if (in.size() != expected) {
    return bad_data("calibration: {} bytes after the header, {} expected", in.size(), expected);
  }
  uint64_t hash = 0;
  std::memcpy(&hash, bytes.data() + bytes.size() - 8, 8);
  if (hash != fnv1a(bytes.substr(0, bytes.size() - 8))) {
    return bad_data("calibration: the checksum does not match; the file is damaged");
  }
  CalibrationStats s;
  s.n_layers = static_cast<int>(dims[0]);
  s.n_heads = static_cast<int>(dims[1]);
  s.bands = static_cast<int>(dims[2]);
  s.rows = static_cast<int64_t>(rows);
  s.model = std::string(in.substr(0, dims[3]));
  in.remove_prefix(dims[3]);
  s.inv_freq.resize(dims[2]);
  s.re.resize(n);
  s.im.resize(n);
  s.abs.resize(n);
  const bool ok = take(in, s.inv_freq.data(), s.inv_freq.size()) && take(in, s.re.data(), n) &&
                  take(in, s.im.data(), n) && take(in, s.abs.data(), n);
  if (!ok || !all_finite(s.re) || !all_finite(s.im) || !all_finite(s.abs)) {
    return bad_data("calibration: a value is not a finite number");
  }
  s.finish();
  return s;
}

}  // namespace pagefold
