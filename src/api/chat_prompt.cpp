// Text of a conversation must not become control tokens. The template's own text is encoded with
// special tokens recognised. If a string of the conversation contains a special token's text, each
// such piece is put between two private-use characters before rendering; afterwards the rendered
// text is cut there, and the pieces are encoded as ordinary characters. A cut may change how the
// neighbouring characters merge, so it is made only where it is needed: conversations without such
// pieces give exactly the ids of the template's text.
#include "api/chat_prompt.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "api/message_spans.h"

namespace pagefold {
namespace {

// Three private-use characters that occur neither in the conversation nor in the template.
struct Sentinels {
  std::string open, close, end;
};

std::optional<Sentinels> choose_sentinels(std::string_view texts, std::string_view source) {
  std::vector<std::string> free;
  for (uint32_t i = 0; i < 4096 && free.size() < 3; ++i) {
    std::string c = private_use_character(i);
    if (texts.find(c) == std::string_view::npos && source.find(c) == std::string_view::npos) {
      free.push_back(std::move(c));
    }
  }
  if (free.size() < 3) return std::nullopt;
  return Sentinels{free[0], free[1], free[2]};
}

bool any_string(const Json& value, const SpecialPieces& special) {
  if (value.is_string()) return special.occurs_in(value.get_ref<const std::string&>());
  if (value.is_array()) {
    for (const Json& item : value) {
      if (any_string(item, special)) return true;
    }
  } else if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      if (special.occurs_in(key) || any_string(item, special)) return true;
    }
  }
  return false;
}

Json marked(const Json& value, const SpecialPieces& special, const Sentinels& s) {
  if (value.is_string()) return special.mark(value.get_ref<const std::string&>(), s.open, s.close);
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value) out.push_back(marked(item, special, s));
    return out;
  }
  if (value.is_object()) {
    Json out = Json::object();
    for (const auto& [key, item] : value.items()) {
      out[special.mark(key, s.open, s.close)] = marked(item, special, s);
    }
    return out;
  }
  return value;
}

// nullopt: the template tore a marked piece apart, so it cannot be told from the template's text.
std::optional<std::vector<int32_t>> encode_marked(const Tokenizer& tokenizer, std::string_view text,
                                                  const Sentinels& s, bool add_special,
                                                  size_t limit) {
  // A template that escapes non-ASCII characters in JSON would hide the marks.
  if (text.find("\\udbc") != std::string_view::npos ||
      text.find("\\uDBC") != std::string_view::npos) {
    return std::nullopt;
  }
  std::vector<int32_t> ids;
  const auto append = [&](std::string_view part, bool trusted) {
    if (part.empty() || ids.size() > limit) return;
    const auto more =
        tokenizer.encode_up_to(part, add_special && ids.empty(), trusted, limit - ids.size());
    ids.insert(ids.end(), more.begin(), more.end());
  };
  while (!text.empty()) {
    const size_t open = std::min(text.find(s.open), text.size());
    if (text.substr(0, open).find(s.close) != std::string_view::npos) return std::nullopt;
    append(text.substr(0, open), true);
    if (open == text.size()) break;
    text.remove_prefix(open + s.open.size());
    const size_t close = text.find(s.close);
    if (close == std::string_view::npos ||
        text.substr(0, close).find(s.open) != std::string_view::npos) {
      return std::nullopt;
    }
    append(text.substr(0, close), false);
    text.remove_prefix(close + s.close.size());
  }
  return ids;
}

// What the template writes after the last message: a mark at the end of its content shows where
// that begins. nullopt: the message is no plain text, or the template does not end with it.
std::optional<std::string> text_after_last_message(const ChatTemplate& chat, Json context,
                                                   const Sentinels& s, std::string_view rendered) {
  const auto messages = context.find("messages");
  if (messages == context.end() || !messages->is_array() || messages->empty()) return std::nullopt;
  Json& last = messages->back();
  if (!last.is_object() || !last.contains("content") || !last["content"].is_string()) {
    return std::nullopt;
  }
  last["content"] = last["content"].get<std::string>() + s.end;
  const auto marked = chat.render(context);
  if (!marked.ok()) return std::nullopt;
  const size_t at = marked->rfind(s.end);
  if (at == std::string::npos) return std::nullopt;
  std::string suffix = marked->substr(at + s.end.size());
  if (!rendered.ends_with(suffix)) return std::nullopt;
  return suffix;
}

// Tokens at the end of `ids` that are the suffix's. A token that a message and the suffix share is
// the message's.
int64_t suffix_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                      std::string_view suffix) {
  if (suffix.empty()) return 0;
  const std::vector<int32_t> own = tokenizer.encode(suffix, false, true);
  const auto n = std::min(own.size(), ids.size());
  size_t same = 0;
  while (same < n && own[own.size() - 1 - same] == ids[ids.size() - 1 - same]) ++same;
  return static_cast<int64_t>(same);
}

// The tokens that the wish names, of a prompt that is complete.
Result<std::vector<KeepSpan>> find_kept(const Tokenizer& tokenizer, const WrittenChat& written,
                                        const std::vector<int32_t>& ids, const KeepWish& wish,
                                        bool forged) {
  std::vector<KeepSpan> spans = wish.spans;
  const auto n = static_cast<int64_t>(ids.size());
  for (KeepSpan& s : spans) {
    if (s.end <= n) continue;
    if (!wish.lenient) {
      return bad_input("kv.keep: span {}:{} ends beyond the prompt of {} tokens", s.begin, s.end,
                       n);
    }
    s.end = n;
  }
  PF_ASSIGN(const std::vector<ByteSpan> bytes, kept_bytes(written, wish));
  const auto more = tokens_of_bytes(tokenizer, ids, written.text, forged, bytes);
  if (!more) {
    return bad_input("kv.keep: the tokens of the messages cannot be told; give spans of tokens");
  }
  spans.insert(spans.end(), more->begin(), more->end());
  return joined_spans(std::move(spans));
}

}  // namespace

Result<ChatPrompt> chat_prompt(const Tokenizer& tokenizer, const ChatTemplate& chat,
                               const SpecialPieces& special, Json context,
                               const ChatPromptOptions& options) {
  const bool forged = any_string(context, special);
  const bool find_suffix = options.find_suffix && !options.continues;
  std::optional<Sentinels> s;
  if (forged || options.continues || find_suffix) {
    s = choose_sentinels(dump_json(context), chat.source());
    if (!s && (forged || options.continues)) return bad_input("too many private-use characters");
  }
  if (forged) context = marked(context, special, *s);
  if (options.continues) {
    Json& last = context["messages"].back()["content"];
    last = last.get<std::string>() + s->end;
  }
  const auto piece = [&](int32_t id) { return id >= 0 ? tokenizer.piece(id) : std::string(); };
  context["bos_token"] = piece(tokenizer.bos());
  context["eos_token"] = piece(tokenizer.eos());
  auto rendered = chat.render(context);
  if (!rendered.ok()) {
    return bad_input("the model's chat template refuses them: {}", message_of(rendered.status()));
  }
  if (options.continues) {
    const size_t end = rendered->rfind(s->end);
    if (end == std::string::npos) {
      return bad_input("continue_final_message: the template does not show the last message");
    }
    rendered->resize(end);
  }
  ChatPrompt prompt;
  if (forged) {
    auto kept_apart = encode_marked(tokenizer, *rendered, *s, options.add_special, options.limit);
    if (!kept_apart) {
      return bad_input("special tokens in them cannot be kept apart from the template");
    }
    prompt.tokens = *std::move(kept_apart);
  } else {
    prompt.tokens = tokenizer.encode_up_to(*rendered, options.add_special, true, options.limit);
  }
  if (prompt.tokens.empty()) return bad_input("the template makes an empty prompt of them");
  if (options.keep != nullptr && prompt.tokens.size() <= options.limit) {
    const std::string text =
        forged ? without_piece(without_piece(*rendered, s->open), s->close) : *rendered;
    WrittenChat written{chat, context, text, {}, {}, options.tools_index, options.first_index};
    if (forged) written.noise = {s->open, s->close};
    if (options.continues) written.cut_at = s->end;
    auto kept = find_kept(tokenizer, written, prompt.tokens, *options.keep, forged);
    prompt.keep_status = kept.status();
    if (kept.ok()) prompt.keep = *std::move(kept);
  }
  prompt.suffix_begin = static_cast<int64_t>(prompt.tokens.size());
  if (find_suffix && s) {
    const auto suffix = text_after_last_message(chat, std::move(context), *s, *rendered);
    if (suffix) prompt.suffix_begin -= suffix_tokens(tokenizer, prompt.tokens, *suffix);
  }
  return prompt;
}

}  // namespace pagefold
