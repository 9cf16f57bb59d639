#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "base/json.h"
#include "server/forwarding_responder.h"
#include "server/responses.h"

namespace pagefold {
namespace {

// One item of a response's output while it grows.
struct OutputItem {
  enum class Kind : uint8_t { reasoning, message, call };
  Kind kind = Kind::message;
  std::string id;
  std::string text;           // a call: its arguments
  std::string call_id, name;  // of a call

  Json part() const {
    if (kind == Kind::reasoning) return {{"type", "reasoning_text"}, {"text", text}};
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}};
  }
  // status: in_progress (without its part), completed, incomplete.
  Json json(std::string_view status) const {
    Json out = {{"id", id}, {"status", std::string(status)}};
    if (kind == Kind::call) {
      out["type"] = "function_call";
      out["call_id"] = call_id;
      out["name"] = name;
      out["arguments"] = text;
      return out;
    }
    out["content"] = Json::array();
    if (status != "in_progress") out["content"].push_back(part());
    out["type"] = kind == Kind::reasoning ? "reasoning" : "message";
    if (kind == Kind::reasoning) {
      out["summary"] = Json::array();
    } else {
      out["role"] = "assistant";
    }
    return out;
  }
};
using Kind = OutputItem::Kind;

class ResponsesResponder final : public ForwardingResponder {
 public:
  ResponsesResponder(std::shared_ptr<Responder> to, Json echo, const std::string& model,
                     const std::string& id)
      : ForwardingResponder(std::move(to)), response_(std::move(echo)), id_(id) {
    response_["id"] = "resp_" + id;
    response_["object"] = "response";
    response_["created_at"] = static_cast<int64_t>(std::time(nullptr));
    response_["model"] = model;
    response_["error"] = nullptr;
    response_["incomplete_details"] = nullptr;
    response_["status"] = "in_progress";
    response_["output"] = Json::array();
    response_["usage"] = nullptr;
  }

  void send(int status, HttpHeaders headers, std::string body) override {
    if (status == 200) body = whole(body);
    to_->send(status, std::move(headers), std::move(body));
  }
  void begin_stream(int status, HttpHeaders headers) override {
    to_->begin_stream(status, std::move(headers));
    event("response.created", {{"response", response_}});
    event("response.in_progress", {{"response", response_}});
  }
  // `chunk` holds whole events.
  void write(std::string_view chunk) override {
    constexpr std::string_view kData = "data: ", kEnd = "\n\n";
    while (!chunk.empty()) {
      const size_t end = std::min(chunk.find(kEnd), chunk.size());
      const std::string_view line = chunk.substr(0, end);
      chunk.remove_prefix(std::min(end + kEnd.size(), chunk.size()));
      if (!line.starts_with(kData) || line == "data: [DONE]") continue;
      const auto json = parse_json(line.substr(kData.size()));
      if (json.ok()) take_chunk(*json);
    }
  }
  void end() override {
    if (!failed_) finish_stream();
    to_->end();
  }

 private:
  void event(std::string_view type, Json members) {
    members["type"] = std::string(type);
    members["sequence_number"] = sequence_++;
    to_->write(fmt::format("event: {}\ndata: {}\n\n", type, dump_json(members)));
  }

  void set_end(const std::string& finish_reason) {
    const bool cut = finish_reason == "length";
    response_["status"] = cut ? "incomplete" : "completed";
    if (cut) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
  }

  void set_usage(const Json& usage) {
    Json out = {{"input_tokens", usage["prompt_tokens"]},
                {"output_tokens", usage["completion_tokens"]},
                {"total_tokens", usage["total_tokens"]},
                {"input_tokens_details", {{"cached_tokens", 0}}},
                {"output_tokens_details", {{"reasoning_tokens", 0}}}};
    const auto details = usage.find("prompt_tokens_details");
    if (details != usage.end() && details->is_object()) out["input_tokens_details"] = *details;
    const auto kv = usage.find("kv");
    if (kv != usage.end()) out["kv"] = *kv;
    response_["usage"] = std::move(out);
  }

  std::string status() const { return response_["status"].get<std::string>(); }

  std::string whole(const std::string& body) {
    const auto chat = parse_json(body);
    if (!chat.ok()) return body;  // ours: cannot happen
    const Json& choice = (*chat)["choices"][0];
    const Json& message = choice["message"];
    set_end(choice["finish_reason"].get<std::string>());
    if (const std::string thought = string_of(message, "reasoning_content"); !thought.empty()) {
      new_item(Kind::reasoning).text = thought;
    }
    const auto calls = message.find("tool_calls");
    const std::string text = string_of(message, "content");
    if (!text.empty() || calls == message.end()) new_item(Kind::message).text = text;
    if (calls != message.end()) {
      for (const Json& call : *calls) new_call(call).text = call["function"]["arguments"];
    }
    for (const OutputItem& item : items_) response_["output"].push_back(item.json(status()));
    set_usage((*chat)["usage"]);
    return dump_json(response_);
  }

  void take_chunk(const Json& chunk) {
    if (const auto error = chunk.find("error"); error != chunk.end()) {
      failed_ = true;
      event("error", {{"code", std::to_string((*error)["code"].get<int>())},
                      {"message", (*error)["message"]},
                      {"param", (*error)["param"]}});
      return;
    }
    if (const auto usage = chunk.find("usage"); usage != chunk.end() && usage->is_object()) {
      set_usage(*usage);
    }
    for (const Json& choice : chunk["choices"]) {
      const Json& delta = choice["delta"];
      if (const auto text = string_of(delta, "reasoning_content"); !text.empty()) {
        add_text(Kind::reasoning, text);
      }
      if (const auto text = string_of(delta, "content"); !text.empty()) {
        add_text(Kind::message, text);
      }
      if (const auto calls = delta.find("tool_calls"); calls != delta.end()) {
        for (const Json& call : *calls) add_call(call);
      }
      if (choice["finish_reason"].is_string()) set_end(choice["finish_reason"].get<std::string>());
    }
  }

  static std::string string_of(const Json& object, const char* name) {
    const auto at = object.find(name);
    return at != object.end() && at->is_string() ? at->get<std::string>() : "";
  }

  OutputItem& new_item(Kind kind) {
    const size_t n = items_.size();
    const std::string_view prefix = kind == Kind::reasoning ? "rs"
                                    : kind == Kind::message ? "msg"
                                                            : "fc";
    items_.push_back(
        {kind, fmt::format("{}_{}{}", prefix, id_, n > 0 ? fmt::format("_{}", n) : "")});
    return items_.back();
  }
  OutputItem& new_call(const Json& call) {
    OutputItem& item = new_item(Kind::call);
    item.call_id = call["id"];
    item.name = call["function"]["name"];
    return item;
  }

  int64_t last_index() const { return static_cast<int64_t>(items_.size()) - 1; }
  Json place() const {
    Json out = {{"item_id", items_.back().id}, {"output_index", last_index()}};
    if (items_.back().kind != Kind::call) out["content_index"] = 0;
    return out;
  }

  // What came before is complete: items do not overlap.
  void open_item(Kind kind, const Json& call) {
    if (!items_.empty()) close_item("completed");
    if (kind == Kind::call) {
      new_call(call);
    } else {
      new_item(kind);
    }
    event("response.output_item.added",
          {{"output_index", last_index()}, {"item", items_.back().json("in_progress")}});
    if (kind == Kind::call) return;
    Json added = place();
    added["part"] = items_.back().part();
    event("response.content_part.added", std::move(added));
  }

  void close_item(std::string_view how) {
    const OutputItem& item = items_.back();
    Json done = place();
    if (item.kind == Kind::call) {
      done["arguments"] = item.text;
      done["name"] = item.name;
      event("response.function_call_arguments.done", std::move(done));
    } else {
      done["text"] = item.text;
      if (item.kind == Kind::message) done["logprobs"] = Json::array();
      event(item.kind == Kind::reasoning ? "response.reasoning_text.done"
                                         : "response.output_text.done",
            std::move(done));
      Json part = place();
      part["part"] = item.part();
      event("response.content_part.done", std::move(part));
    }
    event("response.output_item.done", {{"output_index", last_index()}, {"item", item.json(how)}});
    response_["output"].push_back(item.json(how));
  }

  void add_text(Kind kind, const std::string& text) {
    if (items_.empty() || items_.back().kind != kind) open_item(kind, {});
    items_.back().text += text;
    Json delta = place();
    delta["delta"] = text;
    if (kind == Kind::message) delta["logprobs"] = Json::array();
    event(kind == Kind::reasoning ? "response.reasoning_text.delta" : "response.output_text.delta",
          std::move(delta));
  }

  // A call begins with its name; more of its arguments may come in later chunks.
  void add_call(const Json& call) {
    const Json& function = call["function"];
    if (call.contains("id")) open_item(Kind::call, call);
    const std::string more = string_of(function, "arguments");
    if (more.empty() || items_.empty() || items_.back().kind != Kind::call) return;
    items_.back().text += more;
    Json delta = place();
    delta["delta"] = more;
    event("response.function_call_arguments.delta", std::move(delta));
  }

  void finish_stream() {
    // An answer without text has an empty one.
    if (items_.empty() || items_.back().kind == Kind::reasoning) open_item(Kind::message, {});
    close_item(status());
    event("response." + status(), {{"response", response_}});
  }

  Json response_;
  const std::string id_;
  std::vector<OutputItem> items_;
  int64_t sequence_ = 0;
  bool failed_ = false;
};

}  // namespace

std::shared_ptr<Responder> responses_responder(std::shared_ptr<Responder> to, Json echo,
                                               const std::string& model_name,
                                               const std::string& id) {
  return std::make_shared<ResponsesResponder>(std::move(to), std::move(echo), model_name, id);
}

}  // namespace pagefold
