// Tasks that ask for an answer: the engine generates it like any other request, with the model's
// chat template where it has one, and the answer is graded.
#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "eval/cases.h"
#include "eval/run.h"
#include "pagefold/pagefold.h"

namespace pagefold::eval {
namespace {

constexpr size_t kShownBytes = 2000;

Grade grade(const std::string& task, const Json& expected, std::string_view answer) {
  if (task == "state_query") return grade_state(expected, answer);
  if (task == "qa") return grade_qa(expected, answer);
  return grade_numbers(expected, answer);
}

// The answers of one case.
struct Asked {
  int64_t sample = 0;
  std::vector<std::unique_ptr<TextStream>> streams;
};

class AnswerTask {
 public:
  AnswerTask(Run& run, std::vector<Case> cases)
      : run_(run), o_(run.options), cases_(std::move(cases)) {}

  Status all() {
    run_.samples = cases_.empty() ? run_.samples : fewer(cases_.size());
    std::string type;
    const std::vector<Cell> grid = run_.cells;
    for (const Cell& cell : grid) {
      if (!run_.missing(cell) && !cases_.empty()) continue;
      if (cell.kv_type != type || !engine_) {
        engine_.reset();  // two models need not fit
        PF_ASSIGN(engine_, Engine::open(engine_of(o_, cell.kv_type)));
        type = cell.kv_type;
      }
      if (cases_.empty()) PF_TRY(make_cases());
      if (run_.missing(cell)) PF_TRY(ask_all(cell));
    }
    return ok_status();
  }

 private:
  int64_t fewer(size_t cases) const {
    return std::min<int64_t>(run_.samples, static_cast<int64_t>(cases));
  }

  Status make_cases() {
    const CountTokens tokens = [this](std::string_view text) {
      return static_cast<int64_t>(engine_->tokenize(text, false).size());
    };
    if (o_.task == "needle") {
      cases_ = needle_cases(o_.seed, o_.samples, o_.contexts, o_.needles, tokens);
    } else if (o_.task == "passkey") {
      cases_ = passkey_cases(o_.seed, o_.samples, o_.contexts, tokens);
    } else {
      return bad_data("{}: there are no cases", o_.data);
    }
    run_.samples = fewer(cases_.size());
    return ok_status();
  }

  Result<std::unique_ptr<TextStream>> ask(const Case& c, int64_t sample, int64_t repeat,
                                          const KvOptions& kv) {
    SamplingOptions s;
    s.temperature = static_cast<float>(o_.temperature);
    s.top_p = static_cast<float>(o_.top_p);
    s.max_tokens = o_.max_tokens;
    s.seed = o_.seed * 1000003 + static_cast<uint64_t>(sample * 1009 + repeat);
    auto stream = engine_->chat({{"user", c.question}}, s, kv);
    const bool no_template =
        !stream.ok() && message_of(stream.status()).find("chat template") != std::string::npos;
    return no_template ? engine_->generate(c.question + "\n", s, kv) : std::move(stream);
  }

  Status ask_all(const Cell& cell) {
    const KvOptions kv = cell.words(o_.engine.kv);
    int64_t sample = 0, tokens = 0, answers = 0;
    const auto start = std::chrono::steady_clock::now();
    while (sample < run_.samples) {
      std::vector<Asked> asked;
      for (int64_t n = 0; sample < run_.samples && n < o_.engine.max_num_seqs; ++sample) {
        if (run_.results.find(cell, sample) != nullptr) continue;
        Asked& a = asked.emplace_back();
        a.sample = sample;
        for (int64_t r = 0; r < o_.repeats; ++r, ++n) {
          auto stream = ask(cases_[static_cast<size_t>(sample)], sample, r, kv);
          if (!stream.ok()) return run_.leave_out(cell, stream.status());
          a.streams.push_back(*std::move(stream));
        }
      }
      for (Asked& a : asked) {
        PF_ASSIGN(Json line, finish(a, tokens));
        answers += o_.repeats;
        PF_TRY(run_.keep(cell, a.sample, std::move(line)));
      }
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return run_.results.add_times(cell,
                                  {{"seconds", seconds}, {"tokens", tokens}, {"answers", answers}});
  }

  Result<Json> finish(Asked& a, int64_t& all_tokens) {
    const Case& c = cases_[static_cast<size_t>(a.sample)];
    Json scores = Json::array(), texts = Json::array(), details = Json::array();
    double bytes = 0, peak = 0, compactions = 0, kept = 0, tokens = 0;
    int64_t parsed = 0, cut = 0, least = INT64_MAX, prompt = 0;
    for (auto& stream : a.streams) {
      std::string text;
      while (auto piece = stream->next()) text += *piece;
      const std::string reason = stream->finish_reason();
      if (reason != "stop" && reason != "length")
        return bad_data("an answer ended with '{}'", reason);
      const Grade g = grade(o_.task, c.expected, text);
      const Usage u = stream->usage();
      scores.push_back(g.score);
      if (!g.detail.empty()) details.push_back(g.detail);
      texts.push_back(text.substr(0, kShownBytes));
      parsed += g.parsed ? 1 : 0;
      cut += reason == "length" ? 1 : 0;
      bytes += static_cast<double>(u.kv_bytes);
      peak += static_cast<double>(u.kv_peak_bytes);
      compactions += static_cast<double>(u.kv.compactions);
      least = std::min(least, u.kv.compactions);
      kept += u.kv.kept_tokens;
      tokens += static_cast<double>(u.completion_tokens);
      all_tokens += u.completion_tokens;
      prompt = u.prompt_tokens;
    }
    const auto n = static_cast<double>(a.streams.size());
    Json line = {{"group", c.group},           {"scores", scores},
                 {"parsed", parsed},           {"cut", cut},
                 {"tokens", tokens / n},       {"prompt_tokens", prompt},
                 {"kv_bytes", bytes / n},      {"kv_bytes_peak", peak / n},
                 {"kept_tokens", kept / n},    {"compactions", compactions / n},
                 {"least_compactions", least}, {"answers", texts}};
    if (!details.empty()) line["details"] = details;
    return line;
  }

  Run& run_;
  const EvalOptions& o_;
  std::unique_ptr<Engine> engine_;
  std::vector<Case> cases_;
};

}  // namespace

Status run_answer_task(Run& run, std::vector<Case> cases) {
  return AnswerTask(run, std::move(cases)).all();
}

}  // namespace pagefold::eval
