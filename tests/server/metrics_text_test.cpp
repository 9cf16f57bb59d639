#include "server/metrics_text.h"

#include <gtest/gtest.h>

namespace pagefold {
namespace {

TEST(MetricsText, HistogramsAreCumulative) {
  EngineMetrics m;
  m.ttft_s = Histogram({0.1, 1});
  for (const double v : {0.05, 0.5, 0.6, 7.0}) m.ttft_s.observe(v);
  m.blocks_total = 8;
  m.blocks_used = 2;
  m.blocks_cached = 3;
  m.prefix_queries = 70;
  m.prefix_hits = 48;
  m.pauses_spilled = 5;
  RequestMetrics requests;
  requests.asked(2, 40);
  GenerationResult ended;
  ended.completion_tokens = 5;
  ended.prefill_s = 0.5;
  ended.decode_s = 0.5;
  requests.choice_ended(ended);
  requests.ended(5);
  HttpCounts http;
  for (const int status : {200, 200, 429, 400}) http.add("POST", "/v1/completions", status);
  http.add("BREW", "none", 404);
  const std::string text = metrics_text(m, {}, "a\"b\\c\nd", http.rows(), requests.figures());
  const std::string labels = R"(model_name="a\"b\\c\nd",engine="0")";
  for (const std::string& line :
       {"vllm:time_to_first_token_seconds_bucket{" + labels + ",le=\"0.1\"} 1\n",
        "vllm:time_to_first_token_seconds_bucket{" + labels + ",le=\"1\"} 3\n",
        "vllm:time_to_first_token_seconds_bucket{" + labels + ",le=\"+Inf\"} 4\n",
        "vllm:time_to_first_token_seconds_count{" + labels + "} 4\n",
        "vllm:kv_cache_usage_perc{" + labels + "} 0.25\n",
        "vllm:prefix_cache_queries_total{" + labels + "} 70\n",
        "vllm:prefix_cache_hits_total{" + labels + "} 48\n",
        "pagefold_kv_blocks_cached{" + labels + "} 3\n",
        "pagefold_pauses_total{" + labels + ",by=\"spill\"} 5\n",
        "pagefold_http_requests_total{" + labels +
            ",path=\"/v1/completions\",method=\"POST\",status=\"429\"} 1\n",
        "pagefold_http_requests_total{" + labels +
            ",path=\"none\",method=\"other\",status=\"404\"} 1\n",
        std::string(
            "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} 2\n"),
        std::string(
            "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"4xx\"} 2\n"),
        "vllm:request_params_n_sum{" + labels + "} 2\n",
        "vllm:request_params_max_tokens_bucket{" + labels + ",le=\"50\"} 1\n",
        "vllm:request_params_max_tokens_bucket{" + labels + ",le=\"20\"} 0\n",
        "vllm:request_max_num_generation_tokens_sum{" + labels + "} 5\n",
        "vllm:request_inference_time_seconds_sum{" + labels + "} 1\n",
        "vllm:request_time_per_output_token_seconds_sum{" + labels + "} 0.125\n",
        std::string("# TYPE process_resident_memory_bytes gauge\n"),
        std::string("# TYPE vllm:time_to_first_token_seconds histogram\n")}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text.substr(0, 3000);
  }
}

}  // namespace
}  // namespace pagefold
