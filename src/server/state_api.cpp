#include "server/state_api.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "base/dtype.h"
#include "base/json.h"
#include "kv/option_keys.h"
#include "kv/registry.h"

namespace pagefold {
namespace {

Json pool_json(const EngineMetrics& m, const EnginePort& engine) {
  const EngineConfig& c = engine.config();
  return {{"blocks", m.blocks_total},
          {"used", m.blocks_used},
          {"cached", m.blocks_cached},
          {"block_bytes", m.kv_block_bytes},
          {"block_size", c.block_size},
          {"resident_bytes", m.kv_resident_bytes},
          {"released_bytes", m.kv_released_bytes},
          {"capacity_tokens", engine.kv_capacity_tokens()},
          {"kv_cache_dtype", dtype_name(c.kv_format.k)},
          {"kv_cache_dtype_v", dtype_name(c.kv_format.v)}};
}

Json counters_json(const EngineMetrics& m) {
  return {{"steps", m.steps},
          {"prompt_tokens", m.prompt_tokens},
          {"generation_tokens", m.generation_tokens},
          {"running", m.running},
          {"waiting", m.waiting},
          {"paused", m.paused},
          {"pauses", m.preemptions},
          {"prefix_queries", m.prefix_queries},
          {"prefix_hits", m.prefix_hits},
          {"compactions", m.compactions},
          {"evicted_slots", m.evicted_slots},
          {"moved_slots", m.moved_slots},
          {"freed_blocks", m.compaction_freed_blocks},
          {"spill_bytes", m.spill_used}};
}

// Written by hand: a map has thousands of cells. [owner, percent filled, cells in a row, ...]
void append_cells(std::string& out, const std::vector<BlockCell>& cells) {
  out += '[';
  for (size_t i = 0; i < cells.size();) {
    size_t end = i + 1;
    while (end < cells.size() && cells[end] == cells[i]) ++end;
    fmt::format_to(std::back_inserter(out), "{}{},{},{}", i > 0 ? "," : "", cells[i].owner,
                   cells[i].fill, end - i);
    i = end;
  }
  out += ']';
}

Json sequence_json(const SequenceState& s) {
  return {{"id", s.id},
          {"phase", phase_name(s.phase)},
          {"policy", s.policy},
          {"budget", s.budget > 0 ? Json(s.budget) : Json(nullptr)},
          {"prompt_tokens", s.prompt_tokens},
          {"generated_tokens", s.generated_tokens},
          {"computed_tokens", s.computed_tokens},
          {"cached_tokens", s.cached_tokens},
          {"max_tokens", s.max_tokens},
          {"kept_slots", s.kept_slots},
          {"blocks", s.blocks},
          {"peak_blocks", s.peak_blocks},
          {"full_blocks", s.full_blocks},
          {"compactions", s.compactions}};
}

}  // namespace

std::string state_json(const EngineState& state, const ApiModel& model, const EnginePort& engine) {
  const EngineMetrics& m = state.metrics;
  const double slots_in_blocks = static_cast<double>(m.running_blocks) * engine.config().block_size;
  const double slot_bytes =
      static_cast<double>(m.kv_block_bytes) / static_cast<double>(engine.config().block_size);
  Json sequences = Json::array();
  int64_t full_blocks = 0;
  for (const SequenceState& s : state.sequences) {
    sequences.push_back(sequence_json(s));
    if (s.phase == SequencePhase::prefill || s.phase == SequencePhase::decode) {
      full_blocks += s.full_blocks;
    }
  }
  const uint64_t block = m.kv_block_bytes;
  Json head = {
      {"serial", state.serial},
      {"time_s", state.time_s},
      {"model", model.names.empty() ? "" : model.names.front()},
      {"version", PAGEFOLD_VERSION},
      {"chat", model.chat_template != nullptr},
      {"max_model_len", model.max_model_len},
      {"pool", pool_json(m, engine)},
      {"counters", counters_json(m)},
      // Of running sequences: what the kept slots need, what their blocks take, and what a cache
      // that evicts nothing would take.
      {"memory",
       {{"logical_bytes", static_cast<uint64_t>(static_cast<double>(m.held_slots) * slot_bytes)},
        {"physical_bytes", static_cast<uint64_t>(m.running_blocks) * block},
        {"full_bytes", static_cast<uint64_t>(full_blocks) * block},
        {"filled", slots_in_blocks > 0 ? Json(static_cast<double>(m.held_slots) / slots_in_blocks)
                                       : Json(nullptr)}}},
      {"sequences", std::move(sequences)},
      {"sequences_left_out", state.sequences_left_out},
  };
  std::string out = dump_json(head);
  out.pop_back();
  fmt::format_to(std::back_inserter(out), R"(,"map":{{"blocks_per_cell":{},"n":{},"cells":)",
                 state.blocks_per_cell, state.cells.size());
  append_cells(out, state.cells);
  out += "}}";
  return out;
}

void send_state(const ApiModel& model, EnginePort& engine,
                const std::shared_ptr<Responder>& responder) {
  engine.watch([&model, &engine, responder](std::shared_ptr<const EngineState> state) {
    responder->post([&model, &engine, responder, state = std::move(state)] {
      responder->send(200, {{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}},
                      state_json(*state, model, engine));
    });
  });
}

std::string policies_json(const EngineConfig& config) {
  Json list = Json::array();
  const auto served = [&](const Policy& p) {
    return !p.defaults().offline && p.cost() <= config.most_policy_cost;
  };
  for (const Policy* p : all_policies()) {
    if (!served(*p)) continue;
    list.push_back({{"name", p->name()},
                    {"summary", p->summary()},
                    {"budget", uses_budget(*p)},
                    {"interval", p->defaults().interval}});
  }
  for (const Preset& preset : all_presets()) {
    const Policy* p = find_policy(preset.policy);
    if (p == nullptr || !served(*p)) continue;
    list.push_back({{"name", preset.name},
                    {"summary", fmt::format("{} with alloc={}", preset.policy, preset.alloc)},
                    {"budget", uses_budget(*p)},
                    {"interval", p->defaults().interval}});
  }
  const auto chosen = config.kv.find("policy");
  return dump_json({{"policies", std::move(list)},
                    {"default", chosen == config.kv.end() ? "full" : chosen->second}});
}

}  // namespace pagefold
