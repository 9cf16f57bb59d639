#include "api/kv_usage_json.h"

#include <fmt/format.h>

#include <algorithm>

namespace pagefold {
namespace {

std::string word_or_null(const std::string& word) {
  return word.empty() ? "null" : fmt::format("\"{}\"", word);
}

std::string list_of(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += fmt::format("{}\"{}\"", out.empty() ? "" : ",", w);
  return fmt::format("[{}]", out);
}

}  // namespace

std::string kv_usage_json(const KvUsage& u) {
  // Names of policies and notes are our own plain words: nothing to escape.
  return fmt::format(
      R"({{"policy":"{}","budget":{},"kept_slots":{},"kept_tokens":{},"evicted_tokens":{},"max_head":{},)"
      R"("blocks":{},"bytes":{},"aux_bytes":{},"peak_bytes":{},"freed_blocks":{},"compactions":{},)"
      R"("moved_bytes":{},"scored_ms":{:.3f},"blocks_read":{},"blocks_full":{},"cache_bypass":{},"cache_note":{},)"
      R"("pinned_tokens":{},"session":{},"elastic":{},"unused":{}}})",
      u.policy, u.budget, u.kept_slots, u.kept_tokens, u.evicted_tokens, u.max_head, u.blocks,
      u.bytes, u.aux_bytes, u.peak_bytes, u.freed_blocks, u.compactions, u.moved_bytes, u.scored_ms,
      u.blocks_read, u.blocks_full, u.cache_bypass, word_or_null(u.cache_note), u.pinned_tokens,
      word_or_null(u.session), u.elastic, list_of(u.unused));
}

void add_usage(KvUsage& sum, const KvUsage& one) {
  sum.kept_slots += one.kept_slots;
  sum.kept_tokens += one.kept_tokens;
  sum.evicted_tokens += one.evicted_tokens;
  sum.max_head = std::max(sum.max_head, one.max_head);
  sum.blocks += one.blocks;
  sum.bytes += one.bytes;
  sum.aux_bytes += one.aux_bytes;
  sum.peak_bytes += one.peak_bytes;
  sum.freed_blocks += one.freed_blocks;
  sum.compactions += one.compactions;
  sum.moved_bytes += one.moved_bytes;
  sum.scored_ms += one.scored_ms;
  sum.blocks_read += one.blocks_read;
  sum.blocks_full += one.blocks_full;
  sum.cache_bypass |= one.cache_bypass;
  sum.pinned_tokens += one.pinned_tokens;
  sum.elastic |= one.elastic;
  if (sum.unused.empty()) sum.unused = one.unused;
  if (sum.session.empty()) sum.session = one.session;
  if (sum.cache_note.empty()) sum.cache_note = one.cache_note;
}

}  // namespace pagefold
