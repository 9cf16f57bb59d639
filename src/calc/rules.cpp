#include "calc/rules.h"

#include <algorithm>

namespace pagefold::calc {
namespace {

// Pages that a sequence may share: whole ones of the common prefix.
int64_t shared_pages(std::span<const int64_t> lengths, const RuleOptions& o) {
  int64_t shortest = lengths.empty() ? 0 : lengths.front();
  for (const int64_t n : lengths) shortest = std::min(shortest, n);
  return std::min(o.shared_prefix, shortest) / o.block_size;
}

}  // namespace

Result<Allocation> vllm_allocation(const std::vector<LayerGroup>& groups, const CacheTypes& types,
                                   std::span<const int64_t> lengths, const RuleOptions& options) {
  uint64_t largest = 0;
  int64_t layers = 0;
  bool latent = true;  // layers of one kind, some with an indexer: each pays its own
  for (const LayerGroup& g : groups) {
    if (!g.grows()) continue;
    largest = std::max(largest, layer_token_bytes(g, types));
    layers += g.layers;
    latent = latent && g.kind == LayerKind::mla;
  }
  Allocation a;
  const Checked token = latent ? token_bytes(groups, types) : Checked(largest) * layers;
  PF_ASSIGN(a.token_bytes, token.get("KV bytes a token"));
  Checked pages;
  for (const int64_t n : lengths) pages += ceil_div(n, options.block_size);
  PF_TRY(pages.get("pages").status());
  const int64_t twice = shared_pages(lengths, options) * (static_cast<int64_t>(lengths.size()) - 1);
  const Checked total =
      Checked(static_cast<int64_t>(pages.value()) - twice) * options.block_size * token;
  PF_ASSIGN(a.bytes, total.get("KV bytes"));
  a.rule = fmt::format("pages of {} tokens", options.block_size);
  if (latent) return a;
  a.rule = fmt::format(
      "pages of {} tokens; all {} layers pay the largest layer's {} bytes a token, windows are not "
      "counted",
      options.block_size, layers, largest);
  return a;
}

Result<Allocation> llama_cpp_allocation(const std::vector<LayerGroup>& groups,
                                        const CacheTypes& types, std::span<const int64_t> lengths,
                                        const RuleOptions& options) {
  Checked tokens;
  for (const int64_t n : lengths) tokens += n;
  PF_ASSIGN(const uint64_t asked, tokens.get("tokens"));
  const int64_t cells = round_up(static_cast<int64_t>(asked), options.padding);
  Allocation a;
  a.rule =
      fmt::format("{} cells ({} tokens up to a multiple of {})", cells, asked, options.padding);
  Checked total, token;
  for (const LayerGroup& g : groups) {
    if (!g.grows()) continue;
    const Checked layer = Checked(layer_token_bytes(g, types)) * g.layers;
    int64_t held = cells;
    if (g.windowed()) {
      const Checked window =
          Checked(g.window) * static_cast<int64_t>(lengths.size()) + Checked(options.batch);
      PF_ASSIGN(const uint64_t wanted, window.get("cells of a window"));
      held = std::min(cells, round_up(static_cast<int64_t>(wanted), options.padding));
      a.rule += fmt::format(", {} cells for {} {} layers", held, g.layers, kind_name(g.kind));
    }
    token += layer;
    total += layer * held;
  }
  PF_ASSIGN(a.token_bytes, token.get("KV bytes a token"));
  PF_ASSIGN(a.bytes, total.get("KV bytes"));
  return a;
}

}  // namespace pagefold::calc
