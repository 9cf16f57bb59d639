// "kv" of a request: JSON values become the words that the engine reads.
#include <fmt/format.h>

#include <algorithm>

#include "api/keep_words.h"
#include "server/field_reader.h"
#include "server/openai_request.h"

namespace pagefold {
namespace {

constexpr size_t kMostOptions = 32;
constexpr size_t kLongestName = 64;
constexpr size_t kLongestValue = 4096;
constexpr size_t kLongestSession = 256;  // as the engine has it

// "kv.keep"; "kv" where the name is none that could be known: it is not repeated.
std::string field_of(const std::string& key) {
  const bool plain =
      !key.empty() && key.size() <= kLongestName && std::all_of(key.begin(), key.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
      });
  return plain ? "kv." + key : "kv";
}

bool is_whole(const Json& v) { return v.is_number_integer(); }

// One entry of a list as a word of kv.keep; empty: it is none.
std::string keep_word(const Json& item) {
  if (item.is_string()) {
    const auto& word = item.get_ref<const std::string&>();
    return word.find(',') == std::string::npos ? word : "";
  }
  if (is_whole(item)) return dump_json(item);
  if (item.is_array() && item.size() == 2 && is_whole(item[0]) && is_whole(item[1])) {
    return dump_json(item[0]) + ":" + dump_json(item[1]);
  }
  return {};
}

// ["system", 2, [100, 120]] -> "system,2,100:120".
void read_keep_list(FieldReader& fields, const Json& list, KvOptions& out) {
  std::string words;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string word = keep_word(list[i]);
    if (word.empty()) {
      return fields.fail("kv.keep", fmt::format("entry {} must be a role, the index of a message, "
                                                "or a span [BEGIN, END] of prompt tokens",
                                                i));
    }
    if (!words.empty()) words += ',';
    words += word;
  }
  if (words.size() > kLongestValue) {
    return fields.fail("kv.keep", fmt::format("at most {} bytes of entries", kLongestValue));
  }
  out["keep"] = std::move(words);
}

void read_text(FieldReader& fields, const std::string& key, const std::string& text,
               KvOptions& out) {
  const size_t most = key == "session" ? kLongestSession : kLongestValue;
  if (text.size() > most) {
    return fields.fail(field_of(key),
                       fmt::format("at most {} bytes are accepted, got {}", most, text.size()));
  }
  if (text.empty() && key == "session") {
    return fields.fail(field_of(key), "must not be empty; leave it out for no session");
  }
  out[key] = text;
}

void read_option(FieldReader& fields, const std::string& key, const Json& value, KvOptions& out) {
  if (value.is_null()) return;
  if (value.is_string()) {
    return read_text(fields, key, value.get_ref<const std::string&>(), out);
  }
  if (key == "session") {
    return fields.fail(field_of(key), fmt::format("expected a string, got {}", json_kind(value)));
  }
  if (key == "keep") {
    if (value.is_array()) return read_keep_list(fields, value, out);
    if (!is_whole(value)) {
      return fields.fail(field_of(key), fmt::format("expected a string, the index of a message, or "
                                                    "an array of entries, got {}",
                                                    json_kind(value)));
    }
  }
  if (value.is_boolean()) {
    out[key] = value.get<bool>() ? "on" : "off";
  } else if (value.is_number()) {
    out[key] = dump_json(value);
  } else {
    fields.fail(field_of(key),
                fmt::format("expected a string, a number or true/false, got {}", json_kind(value)));
  }
}

}  // namespace

void read_kv(FieldReader& fields, KvOptions& out) {
  const Json* kv = fields.find_object("kv");
  if (kv == nullptr) return;
  if (kv->size() > kMostOptions) {
    return fields.fail("kv", fmt::format("at most {} options are accepted", kMostOptions));
  }
  for (const auto& [key, value] : kv->items()) {
    if (key.size() > kLongestName) {
      return fields.fail("kv", fmt::format("an option's name has at most {} bytes", kLongestName));
    }
    read_option(fields, key, value, out);
    if (!fields.ok()) return;
  }
}

void read_keep(FieldReader& fields, CompletionRequest& request) {
  const auto words = request.kv.find("keep");
  if (!fields.ok() || words == request.kv.end()) return;
  const auto wish = parse_keep(words->second);
  if (!wish.ok()) return fields.fail_with(api_error(wish.status()));
  if (wish->needs_messages()) {
    return fields.fail("kv.keep", "roles and indices of messages need \"messages\"; give spans");
  }
  for (Prompt& p : request.prompts) p.keep = spans_text(joined_spans(wish->spans));
  request.kv.erase(words);
}

}  // namespace pagefold
