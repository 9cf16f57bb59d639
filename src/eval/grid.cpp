#include "eval/grid.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "base/file.h"
#include "eval/eval.h"

namespace pagefold::eval {
namespace {

constexpr size_t kMostResultBytes = size_t{1} << 30;

// The first setting that differs, for a message.
std::string difference(const Json& have, const Json& want) {
  for (const auto& [key, value] : want.items()) {
    if (!have.contains(key)) return fmt::format("{} is not in it", key);
    if (have[key] != value) {
      return fmt::format("{} was {} there and is {} now", key, dump_json(have[key]),
                         dump_json(value));
    }
  }
  return have.size() == want.size() ? std::string() : "it has settings of another version";
}

}  // namespace

std::vector<std::string> split_words(const std::string& list) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string word = list.substr(at, end - at);
    const bool goes_on = !out.empty() && word.find('=') != std::string::npos &&
                         word.find(':') > word.find('=') &&
                         out.back().find(':') != std::string::npos;
    if (goes_on) {
      out.back() += "," + word;
    } else if (!word.empty()) {
      out.push_back(word);
    }
    at = end + 1;
  }
  return out;
}

KvOptions Cell::words(const KvOptions& common) const {
  KvOptions kv = full() ? KvOptions{} : common;
  kv["policy"] = policy;
  if (!budget.empty()) kv["budget"] = budget;
  return kv;
}

std::vector<Cell> make_grid(const std::vector<std::string>& policies,
                            const std::vector<std::string>& budgets,
                            const std::vector<std::string>& kv_types) {
  std::vector<Cell> cells;
  std::set<std::string> seen;
  const auto add = [&](Cell cell) {
    if (seen.insert(cell.key()).second) cells.push_back(std::move(cell));
  };
  for (const std::string& type : kv_types) {
    add({"full", "", type});
    for (const std::string& policy : policies) {
      if (policy == "full") continue;
      for (const std::string& budget : budgets) add({policy, budget, type});
    }
  }
  return cells;
}

void Results::Close::operator()(const int* fd) const {
  ::close(*fd);
  delete fd;
}

// Locked until it is closed: lines of two runs in one file would be counted twice.
Status Results::open_file(const std::string& path) {
  path_ = path;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return io_error("{}: {}", path, std::strerror(errno));
  file_.reset(new int(fd));
  // A run that was killed a moment ago still has it while its memory is given back.
  constexpr int kTries = 10;
  for (int i = 0; ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++i) {
    if (i == kTries) {
      return bad_input("{}: another run is writing to it; wait for it, or give another --output",
                       path);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return ok_status();
}

Status Results::read(const Json& settings) {
  PF_ASSIGN(const std::string text, read_file(path_, kMostResultBytes));
  size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  bool first = true;
  for (size_t at = 0; at < whole;) {
    const size_t end = text.find('\n', at);
    auto line = parse_json(std::string_view(text).substr(at, end - at));
    at = end + 1;
    if (!line.ok() || !line->is_object() || (first && !line->contains("settings"))) {
      return bad_data("{}: this is no results file of eval; give another --output", path_);
    }
    if (first) {
      const std::string differs = difference((*line)["settings"], settings);
      // A run that was refused after this line measured nothing: whoever mends it may go on here.
      if (!differs.empty() && at == whole) {
        whole = 0;
        break;
      }
      if (!differs.empty()) {
        return bad_input("{}: measured with other settings ({}); give another --output", path_,
                         differs);
      }
    } else {
      take(*std::move(line));
    }
    first = false;
  }
  if (whole != text.size() && ::ftruncate(*file_, static_cast<off_t>(whole)) != 0) {
    return io_error("{}: {}", path_, std::strerror(errno));
  }
  return first ? append({{"settings", settings}}) : ok_status();
}

Result<Results> Results::open(const std::string& path, const Json& settings) {
  Results r;
  if (path.empty()) return r;
  PF_TRY(r.open_file(path));
  PF_TRY(r.read(settings));
  return r;
}

void Results::take(Json line) {
  if (!line.contains("cell") || !line["cell"].is_string()) return;
  const auto cell = line["cell"].get<std::string>();
  if (line.contains("times")) {
    times_[cell].push_back(line["times"]);
  } else if (line.contains("sample") && line["sample"].is_number_integer()) {
    const auto sample = line["sample"].get<int64_t>();
    lines_[{cell, sample}] = std::move(line["values"]);
  }
}

const Json* Results::find(const Cell& cell, int64_t sample) const {
  const auto it = lines_.find({cell.key(), sample});
  return it == lines_.end() ? nullptr : &it->second;
}

Status Results::append(const Json& line) {
  if (!file_) return ok_status();
  const std::string text = dump_json(line) + "\n";
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(*file_, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("{}: {}", path_, std::strerror(errno));
    at += static_cast<size_t>(n);
  }
  return ok_status();
}

Status Results::add(const Cell& cell, int64_t sample, Json values) {
  Json line = {{"cell", cell.key()}, {"sample", sample}, {"values", std::move(values)}};
  PF_TRY(append(line));
  take(std::move(line));
  return ok_status();
}

Status Results::add_times(const Cell& cell, const Json& times) {
  Json line = {{"cell", cell.key()}, {"times", times}};
  PF_TRY(append(line));
  take(std::move(line));
  return ok_status();
}

const std::vector<Json>& Results::times(const Cell& cell) const {
  static const std::vector<Json> none;
  const auto it = times_.find(cell.key());
  return it == times_.end() ? none : it->second;
}

}  // namespace pagefold::eval
