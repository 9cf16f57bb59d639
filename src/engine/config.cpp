#include "engine/config.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "base/system.h"
#include "engine/compression.h"
#include "engine/spill_file.h"

namespace pagefold {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

bool fits_a_chunk(int block_size) {
  return block_size == 16 || block_size == 32 || block_size == 64 || block_size == 128 ||
         block_size == 256;
}

Status check_options(const EngineOptions& o) {
  PF_TRY(check_block_size(o.block_size));
  if (o.max_num_seqs < 1 || o.max_num_seqs > 4096) {
    return bad_input("--max-num-seqs: must be between 1 and 4096, got {}", o.max_num_seqs);
  }
  if (o.max_num_batched_tokens < 1 || o.max_num_batched_tokens > 1 << 20) {
    return bad_input("--max-num-batched-tokens: must be between 1 and 1048576, got {}",
                     o.max_num_batched_tokens);
  }
  if (o.max_queued_requests < 1) {
    return bad_input("--max-queued-requests: must be at least 1, got {}", o.max_queued_requests);
  }
  if (!(o.memory_utilization > 0) || o.memory_utilization > 1) {
    return bad_input("--memory-utilization: must be above 0 and at most 1, got {}",
                     o.memory_utilization);
  }
  if (!(o.prefix_cache_ttl >= 0) || o.prefix_cache_ttl > 1e8) {
    return bad_input("--prefix-cache-ttl: must be between 0 and 1e8 seconds, got {}",
                     o.prefix_cache_ttl);
  }
  if (!(o.kv_session_ttl > 0) || o.kv_session_ttl > 1e8) {
    return bad_input("--kv-session-ttl: must be above 0 and at most 1e8 seconds, got {}",
                     o.kv_session_ttl);
  }
  if (o.admission != "optimistic" && o.admission != "guaranteed") {
    return bad_input("--admission: must be optimistic or guaranteed");
  }
  return ok_status();
}

Result<int64_t> resolve_model_len(const EngineOptions& o, const ModelShape& model) {
  if (o.max_model_len < 0 || o.max_model_len == 1 || o.max_model_len > int64_t{1} << 30) {
    return bad_input(
        "--max-model-len: must be between 2 (one prompt token, one answer token) and 2^30, or 0 "
        "for the model's own limit; got {}",
        o.max_model_len);
  }
  if (o.max_model_len == 0) {
    if (model.context_length < 2) {
      return bad_input("the model states no usable context length ({}); give --max-model-len",
                       model.context_length);
    }
    return model.context_length;
  }
  if (model.context_length > 0 && o.max_model_len > model.context_length) {
    if (!o.allow_long_context) {
      return bad_input(
          "--max-model-len {} is beyond the model's own limit of {} tokens; lower it, or add "
          "--allow-long-context to run anyway (no quality is promised there)",
          o.max_model_len, model.context_length);
    }
  }
  return o.max_model_len;
}

}  // namespace

std::string with_commas(int64_t n) {
  const std::string digits = std::to_string(n);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-') out.push_back(',');
    out.push_back(digits[i]);
  }
  return out;
}

Status check_block_size(int block_size) {
  if (fits_a_chunk(block_size)) return ok_status();
  return bad_input(
      "--block-size: must be 16, 32, 64, 128 or 256 (whole strips of 16 slots that fill the "
      "kernels' chunks of 256), got {}",
      block_size);
}

int64_t pool_tokens(const CacheShape& shape, int64_t blocks, double concurrency,
                    int64_t max_model_len) {
  const bool windows = std::any_of(shape.layer_window.begin(), shape.layer_window.end(),
                                   [](int64_t w) { return w > 0; });
  return windows ? static_cast<int64_t>(concurrency * static_cast<double>(max_model_len))
                 : blocks / shape.n_tables() * shape.block_size;
}

CacheShape cache_shape(const EngineConfig& config, const ModelShape& model) {
  return {model.n_layers, model.n_kv_heads, config.block_size, model.layer_window};
}

Result<PoolSize> pool_size(const EngineConfig& config, const ModelShape& model,
                           uint64_t block_bytes) {
  const CacheShape shape = cache_shape(config, model);
  const int64_t rows = config.max_num_batched_tokens;
  const uint64_t blocks =
      std::min<uint64_t>(config.kv_cache_memory_bytes / block_bytes, kNoBlock - 1);
  PoolSize size;
  size.n_blocks = static_cast<uint32_t>(blocks);
  const KvModel kv = kv_model(model, config.block_size);
  PF_ASSIGN(const std::shared_ptr<const KvPlan> plan,
            resolve_kv_plan({}, config, kv, 0, /*sizing=*/true));
  // With a default budget a long answer needs no more than the budget; a request that needs more is
  // refused when it comes.
  size.blocks_per_request = peak_blocks(*plan, kv, shape, 1, config.max_model_len - 1, rows);
  const auto n = static_cast<int64_t>(blocks);
  if (size.blocks_per_request > n) {
    int64_t fits = 0;
    for (int64_t step = int64_t{1} << 30; step > 0; step /= 2) {
      if (shape.peak_blocks(fits + step, rows) <= n) fits += step;
    }
    const uint64_t needed = static_cast<uint64_t>(size.blocks_per_request) * block_bytes;
    const std::string way_out =
        fits >= 2 ? fmt::format("lower --max-model-len to at most {}, or give", fits) : "give";
    return bad_input(
        "the KV cache is too small: one sequence of {} tokens needs {} bytes ({:.1f} MiB), but "
        "only {} bytes ({:.1f} MiB) are available; {} at least that much with "
        "--kv-cache-memory-bytes",
        config.max_model_len, needed, static_cast<double>(needed) / kMiB,
        config.kv_cache_memory_bytes, static_cast<double>(config.kv_cache_memory_bytes) / kMiB,
        way_out);
  }
  size.concurrency = static_cast<double>(n) / static_cast<double>(size.blocks_per_request);
  size.capacity_tokens = pool_tokens(shape, n, size.concurrency, config.max_model_len);
  return size;
}

namespace {

// The folder that was named, or the usual one if it can be written; empty: nothing is spilled.
std::string spill_folder(const std::string& named) {
  if (named == "off") return {};
  if (!named.empty()) return named;
  const char* variable = std::getenv("TMPDIR");
  std::string folder = variable != nullptr && *variable != '\0' ? variable : "/var/tmp";
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return folder;
  log::info("{} cannot be written: paused requests will be computed again", folder);
  return {};
}

// Everything that does not depend on the memory of the machine.
Result<EngineConfig> resolve_limits(const EngineOptions& options, const ModelShape& model,
                                    const KvFormat& kv_format) {
  PF_TRY(check_options(options));
  EngineConfig config;
  config.block_size = options.block_size;
  config.max_num_batched_tokens = options.max_num_batched_tokens;
  // Every running sequence must be able to move in every step.
  config.max_num_seqs = std::min(options.max_num_seqs, options.max_num_batched_tokens);
  config.max_queued_requests = options.max_queued_requests;
  config.prefix_caching = options.enable_prefix_caching;
  config.prefix_cache_memory_bytes = options.prefix_cache_memory_bytes;
  config.prefix_cache_ttl_s = options.prefix_cache_ttl;
  config.guaranteed_admission = options.admission == "guaranteed";
  config.session_ttl_s = options.kv_session_ttl;
  config.session_bytes = options.kv_session_bytes;
  config.spill_dir = spill_folder(options.kv_spill_dir);
  config.spill_bytes = options.kv_spill_bytes;
  // Nobody waits for weights to learn that the folder is none.
  if (!config.spill_dir.empty())
    PF_TRY(SpillFile::create(config.spill_dir, config.spill_bytes).status());
  config.kv = options.kv;
  config.kv_format = kv_format;
  config.kv_huge_pages = options.kv_huge_pages;
  PF_ASSIGN(config.max_model_len, resolve_model_len(options, model));
  return config;
}

void warn_of_huge_pages(const EngineOptions& options) {
  const auto policy = options.kv.find("policy");
  if (policy != options.kv.end() && policy->second != "full") {
    log::warn(
        "--kv-huge-pages: what {} frees is used again, but goes back to the operating system only "
        "where 2 MiB of it lie together",
        policy->second);
  }
  if (!huge_pages_allowed()) {
    log::warn("--kv-huge-pages: this system gives none (transparent_hugepage/enabled is never)");
  }
}

void warn_of_limits(const EngineOptions& options, const ModelShape& model,
                    const EngineConfig& config) {
  if (config.kv_huge_pages) warn_of_huge_pages(options);
  if (config.max_num_seqs < options.max_num_seqs) {
    log::warn("at most {} sequences run at once, as --max-num-batched-tokens is {}",
              config.max_num_batched_tokens, config.max_num_batched_tokens);
  }
  if (model.context_length > 0 && config.max_model_len > model.context_length) {
    log::warn("--max-model-len {} is beyond the model's own limit of {} tokens; answers may be bad",
              config.max_model_len, model.context_length);
  }
}

}  // namespace

Result<EngineConfig> resolve_config(const EngineOptions& options, const ModelShape& model,
                                    const KvFormat& kv_format, uint64_t free_memory) {
  PF_ASSIGN(EngineConfig config, resolve_limits(options, model, kv_format));
  warn_of_limits(options, model, config);
  PF_TRY(fit_pool(options, model, free_memory, config));
  return config;
}

Status fit_pool(const EngineOptions& options, const ModelShape& model, uint64_t free_memory,
                EngineConfig& config) {
  const uint64_t block_bytes = config.kv_format.block_bytes(model.head_dim, config.block_size);
  config.kv_cache_memory_bytes = options.kv_cache_memory_bytes;
  if (options.kv_cache_memory_bytes == 0) {
    const auto share =
        static_cast<uint64_t>(options.memory_utilization * static_cast<double>(free_memory));
    const int64_t longest =
        cache_shape(config, model).peak_blocks(config.max_model_len, config.max_num_batched_tokens);
    const uint64_t useful =
        static_cast<uint64_t>(config.max_num_seqs) * static_cast<uint64_t>(longest) * block_bytes;
    config.kv_cache_memory_bytes = std::min(share, useful);
  }
  config.kv_cache_memory_bytes -= config.kv_cache_memory_bytes % block_bytes;
  return pool_size(config, model, block_bytes).status();
}

}  // namespace pagefold
