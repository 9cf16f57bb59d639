#include "server/metrics_text.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <iterator>
#include <map>

#include "base/dtype.h"
#include "base/system.h"

namespace pagefold {
namespace {

std::string escaped(std::string_view label) {
  std::string out;
  for (const char c : label) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

class Exposition {
 public:
  explicit Exposition(std::string labels) : labels_(std::move(labels)) {}

  void describe(std::string_view name, std::string_view type, std::string_view help) {
    fmt::format_to(std::back_inserter(out_), "# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }
  template <class T>
  void sample(std::string_view name, T value, std::string_view more_labels = "") {
    fmt::format_to(std::back_inserter(out_), "{}{{{}{}{}}} {}\n", name, labels_,
                   more_labels.empty() ? "" : ",", more_labels, value);
  }
  template <class T>
  void gauge(std::string_view name, std::string_view help, T value) {
    describe(name, "gauge", help);
    sample(name, value);
  }
  template <class T>
  void counter(std::string_view name, std::string_view help, T value) {
    describe(name, "counter", help);
    sample(name, value);
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& h) {
    describe(name, "histogram", help);
    const std::string bucket = fmt::format("{}_bucket", name);
    uint64_t below = 0;
    for (size_t i = 0; i < h.bounds.size(); ++i) {
      below += i < h.counts.size() ? h.counts[i] : 0;
      sample(bucket, below, fmt::format("le=\"{}\"", h.bounds[i]));
    }
    sample(bucket, h.n, "le=\"+Inf\"");
    sample(fmt::format("{}_sum", name), h.sum);
    sample(fmt::format("{}_count", name), h.n);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string labels_, out_;
};

void add_counts(Exposition& x, const EngineMetrics& m) {
  x.counter("vllm:prompt_tokens_total", "Prompt tokens computed.", m.prompt_tokens);
  x.counter("vllm:generation_tokens_total", "Tokens generated.", m.generation_tokens);
  x.counter("vllm:num_preemptions_total", "Sequences paused to free cache blocks.", m.preemptions);
  x.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
            m.prefix_queries);
  x.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
            m.prefix_hits);
  x.counter("vllm:gpu_prefix_cache_queries_total", "Older name of prefix_cache_queries_total.",
            m.prefix_queries);
  x.counter("vllm:gpu_prefix_cache_hits_total", "Older name of prefix_cache_hits_total.",
            m.prefix_hits);
  x.describe("vllm:request_success_total", "counter", "Finished requests by reason.");
  x.sample("vllm:request_success_total", m.finished_stop, "finished_reason=\"stop\"");
  x.sample("vllm:request_success_total", m.finished_length, "finished_reason=\"length\"");
  x.sample("vllm:request_success_total", m.finished_abort, "finished_reason=\"abort\"");
  x.sample("vllm:request_success_total", m.finished_error, "finished_reason=\"error\"");
}

void add_histograms(Exposition& x, const EngineMetrics& m) {
  x.histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", m.ttft_s);
  x.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a request.",
              m.inter_token_s);
  x.histogram("vllm:time_per_output_token_seconds", "Older name of inter_token_latency_seconds.",
              m.inter_token_s);
  x.histogram("vllm:e2e_request_latency_seconds", "From arrival to the end.", m.e2e_s);
  x.histogram("vllm:request_queue_time_seconds", "Waiting for admission.", m.queue_s);
  x.histogram("vllm:request_prefill_time_seconds", "From admission to the first token.",
              m.prefill_s);
  x.histogram("vllm:request_decode_time_seconds", "From the first to the last token.", m.decode_s);
  x.histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", m.request_prompt_tokens);
  x.histogram("vllm:request_generation_tokens", "Generated tokens of a request.",
              m.request_generation_tokens);
  x.histogram("vllm:iteration_tokens_total", "Tokens computed in one step.", m.iteration_tokens);
}

void add_requests(Exposition& x, const RequestFigures& r) {
  x.histogram("vllm:request_params_n", "Choices that a request asks for.", r.n);
  x.histogram("vllm:request_params_max_tokens",
              "max_tokens of a request; the model's length where it names none.", r.max_tokens);
  x.histogram("vllm:request_max_num_generation_tokens", "Tokens of a request's longest choice.",
              r.most_generated);
  x.histogram("vllm:request_inference_time_seconds", "From admission to the end, of a choice.",
              r.inference_s);
  x.histogram("vllm:request_time_per_output_token_seconds",
              "Decode time over tokens after the first, of a choice.", r.token_s);
}

void add_http(Exposition& x, const std::vector<HttpCounts::Row>& rows) {
  x.describe("pagefold_http_requests_total", "counter", "HTTP answers by path, method and status.");
  for (const auto& [method, handler, status, n] : rows) {
    x.sample("pagefold_http_requests_total", n,
             fmt::format(R"(path="{}",method="{}",status="{}")", escaped(handler), method, status));
  }
}

// The same under the name and with the labels that vLLM's instrumentation gives it: statuses in
// classes, and none of the engine's labels.
void add_vllm_http(std::string& out, const std::vector<HttpCounts::Row>& rows) {
  out +=
      "# HELP http_requests_total HTTP answers by method, handler and class of status.\n"
      "# TYPE http_requests_total counter\n";
  std::map<std::string, uint64_t> sums;
  for (const auto& [method, handler, status, n] : rows) {
    sums[fmt::format(R"(handler="{}",method="{}",status="{}xx")", escaped(handler), method,
                     status / 100)] += n;
  }
  for (const auto& [labels, n] : sums) {
    fmt::format_to(std::back_inserter(out), "http_requests_total{{{}}} {}\n", labels, n);
  }
}

// What Prometheus' own clients say of a process.
void add_process(std::string& out) {
  rusage used{};
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  const double cpu =
      getrusage(RUSAGE_SELF, &used) == 0 ? seconds(used.ru_utime) + seconds(used.ru_stime) : 0;
  fmt::format_to(std::back_inserter(out),
                 "# HELP process_resident_memory_bytes Resident memory of the process.\n"
                 "# TYPE process_resident_memory_bytes gauge\n"
                 "process_resident_memory_bytes {}\n"
                 "# HELP process_cpu_seconds_total Processor time of the process.\n"
                 "# TYPE process_cpu_seconds_total counter\n"
                 "process_cpu_seconds_total {}\n",
                 resident_memory().total, cpu);
}

void add_ours(Exposition& x, const EngineMetrics& m, const EngineConfig& config) {
  x.gauge("pagefold_kv_blocks_total", "Blocks of the KV pool.", m.blocks_total);
  x.gauge("pagefold_kv_blocks_used", "Blocks held by sequences.", m.blocks_used);
  x.gauge("pagefold_kv_blocks_cached",
          "Blocks that only the prefix cache holds; they count as free.", m.blocks_cached);
  x.gauge("pagefold_prefix_cache_entries",
          "Entries of the prefix cache: a block of tokens over all layers and heads.",
          m.prefix_entries);
  x.counter("pagefold_prefix_cache_reclaimed_total", "Entries given up for want of room.",
            m.prefix_reclaimed);
  x.counter("pagefold_prefix_cache_expired_total", "Entries that outlived --prefix-cache-ttl.",
            m.prefix_expired);
  x.gauge("pagefold_sessions", "Conversations kept between two turns (kv.session).", m.sessions);
  x.gauge("pagefold_session_blocks",
          "Blocks that they hold, shared ones once; blocks_used counts them.", m.session_blocks);
  x.describe("pagefold_session_turns_total", "counter", "Turns that found a session kept.");
  x.sample("pagefold_session_turns_total", m.sessions_continued, "how=\"continued\"");
  x.sample("pagefold_session_turns_total", m.sessions_reread, "how=\"reread\"");
  x.counter("pagefold_session_tokens_total", "Tokens that turns did not read again.",
            m.session_tokens);
  x.counter("pagefold_sessions_reclaimed_total", "Sessions given up for want of room.",
            m.sessions_reclaimed);
  x.counter("pagefold_sessions_expired_total", "Sessions that outlived --kv-session-ttl.",
            m.sessions_expired);
  x.counter("pagefold_kv_budgets_lowered_total",
            "Budgets lowered for want of blocks, of requests with kv.elastic.", m.budgets_lowered);
  x.gauge("pagefold_requests_paused", "Requests that wait for their blocks to come back.",
          m.paused);
  x.describe("pagefold_pauses_total", "counter", "Pauses by how the request goes on.");
  x.sample("pagefold_pauses_total", m.pauses_spilled, "by=\"spill\"");
  x.sample("pagefold_pauses_total", m.pauses_recomputed, "by=\"recompute\"");
  x.gauge("pagefold_kv_spill_bytes", "Bytes of the spill file in use.", m.spill_used);
  x.counter("pagefold_kv_spill_written_bytes_total", "Bytes written to it.", m.spill_written);
  x.counter("pagefold_kv_spill_read_bytes_total", "Bytes read back.", m.spill_read);
  x.gauge("pagefold_kv_block_bytes", "Bytes of one block (keys and values of one layer and head).",
          m.kv_block_bytes);
  x.gauge("pagefold_kv_resident_bytes", "Bytes of the KV pool that are committed.",
          m.kv_resident_bytes);
  x.counter("pagefold_kv_released_bytes_total", "Bytes given back to the operating system.",
            m.kv_released_bytes);
  x.counter("pagefold_kv_saturated_total",
            "Elements of keys and values beyond the largest finite value of an fp8 cache.",
            m.kv_saturated);
  x.counter("pagefold_compactions_total", "Compactions of sequences.", m.compactions);
  x.counter("pagefold_compactions_again_total",
            "Compactions that paused sequences did again; the other counters leave them out.",
            m.compactions_again);
  x.counter("pagefold_kv_evicted_slots_total", "Slots evicted, over layers and KV heads.",
            m.evicted_slots);
  x.counter("pagefold_kv_moved_slots_total", "Slots moved by compactions.", m.moved_slots);
  x.counter("pagefold_kv_compaction_freed_blocks_total", "Blocks freed by compactions.",
            m.compaction_freed_blocks);
  x.counter("pagefold_kv_scoring_seconds_total", "Scoring, selection and planning.", m.scoring_s);
  x.counter("pagefold_kv_moving_seconds_total", "Moving slots.", m.moving_s);
  const auto logical = static_cast<double>(m.logical_slots);
  const double slots_in_blocks =
      static_cast<double>(m.running_blocks) * static_cast<double>(config.block_size);
  x.gauge("pagefold_kv_logical_compression_ratio",
          "Tokens computed over slots kept, of running sequences; 1: nothing evicted.",
          m.held_slots > 0 ? logical / static_cast<double>(m.held_slots) : 1.0);
  x.gauge("pagefold_kv_physical_compression_ratio",
          "Tokens computed over slots of the blocks held, of running sequences.",
          slots_in_blocks > 0 ? logical / slots_in_blocks : 1.0);
  x.counter("pagefold_steps_total", "Steps of the engine.", m.steps);
  x.describe("pagefold_stage_seconds_total", "counter", "Time spent in each stage of the step.");
  constexpr std::string_view kStages[] = {"plan", "forward", "sample", "emit"};
  for (size_t i = 0; i < m.stage_s.size(); ++i) {
    x.sample("pagefold_stage_seconds_total", m.stage_s[i], fmt::format("stage=\"{}\"", kStages[i]));
  }
}

}  // namespace

std::string metrics_text(const EngineMetrics& m, const EngineConfig& config,
                         std::string_view model_name,
                         const std::vector<HttpCounts::Row>& http_requests,
                         const RequestFigures& requests) {
  Exposition x(fmt::format("model_name=\"{}\",engine=\"0\"", escaped(model_name)));
  x.gauge("vllm:num_requests_running", "Requests in the running batch.", m.running);
  x.gauge("vllm:num_requests_waiting", "Requests waiting for admission.", m.waiting);
  const double used = m.blocks_total > 0
                          ? static_cast<double>(m.blocks_used) / static_cast<double>(m.blocks_total)
                          : 0.0;
  x.gauge("vllm:kv_cache_usage_perc", "Used share of the KV pool, 0 to 1.", used);
  x.gauge("vllm:gpu_cache_usage_perc", "Older name of kv_cache_usage_perc.", used);
  x.describe("vllm:cache_config_info", "gauge", "Settings of the KV cache as labels.");
  x.sample(
      "vllm:cache_config_info", 1,
      fmt::format(R"(block_size="{}",cache_dtype="{}",cache_dtype_v="{}",cache_group="{}",)"
                  R"(num_gpu_blocks="{}",kv_cache_memory_bytes="{}")",
                  config.block_size, dtype_name(config.kv_format.k), dtype_name(config.kv_format.v),
                  config.kv_format.group, m.blocks_total, config.kv_cache_memory_bytes));
  add_counts(x, m);
  add_histograms(x, m);
  add_requests(x, requests);
  add_ours(x, m, config);
  add_http(x, http_requests);
  std::string out = x.take();
  add_vllm_http(out, http_requests);
  add_process(out);
  return out;
}

}  // namespace pagefold
