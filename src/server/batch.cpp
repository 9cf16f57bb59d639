#include "server/batch.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <istream>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <unordered_set>
#include <utility>

#include "base/json.h"
#include "server/request_ids.h"

namespace pagefold {
namespace {

// Work that belongs to the caller's thread; any thread adds to it.
class WorkQueue {
 public:
  void post(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_one();
  }
  // Waits for one piece and does it.
  void run_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !queue_.empty(); });
    auto work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
};

struct Item {
  Json custom_id = nullptr;
  HttpRequest request;
  std::string refused;  // why it is no request; "": it is one
  int status = 0;
  std::string body;
  bool answered = false;  // for good
  bool tried_alone = false;
};

// Keeps the answer in its item. Streams are refused before, so send() is all there is.
class ItemResponder final : public Responder {
 public:
  ItemResponder(WorkQueue& queue, std::shared_ptr<Item> item, std::function<void()> on_answer)
      : queue_(queue), item_(std::move(item)), on_answer_(std::move(on_answer)) {}
  void add_header(std::string_view, std::string_view) override {}
  void send(int status, HttpHeaders, std::string body) override {
    item_->status = status;
    item_->body = std::move(body);
    end();
  }
  void begin_stream(int status, HttpHeaders) override { item_->status = status; }
  void write(std::string_view chunk) override { item_->body += chunk; }
  void end() override {
    on_closed_ = nullptr;
    queue_.post(std::exchange(on_answer_, nullptr));
  }
  size_t queued_bytes() const override { return 0; }
  size_t max_queued_bytes() const override { return SIZE_MAX; }
  void on_writable(std::function<void()>) override {}
  // Never called: nobody leaves. Kept, because it keeps the one alive who answers.
  void on_closed(std::function<void()> callback) override { on_closed_ = std::move(callback); }
  void post(std::function<void()> work) override { queue_.post(std::move(work)); }

 private:
  WorkQueue& queue_;
  const std::shared_ptr<Item> item_;
  std::function<void()> on_answer_, on_closed_;
};

// One line without its end; nullopt: no more. too_long: only its beginning is given.
std::optional<std::string> read_line(std::istream& in, size_t most, bool& too_long) {
  std::string line;
  too_long = false;
  std::streambuf& bytes = *in.rdbuf();
  int c = bytes.sbumpc();
  if (c == std::char_traits<char>::eof()) return std::nullopt;
  for (; c != std::char_traits<char>::eof() && c != '\n'; c = bytes.sbumpc()) {
    if (line.size() < most) {
      line += static_cast<char>(c);
    } else {
      too_long = true;
    }
  }
  return line;
}

class Batch {
 public:
  Batch(HttpHandler& handler, std::istream& in, std::ostream& out, const BatchOptions& options)
      : handler_(handler), in_(in), out_(out), options_(options) {}

  Result<BatchCounts> run() {
    for (;;) {
      fill();
      if (items_.empty()) return counts_;
      write_ready();
      if (!out_) return io_error("the output takes no more after {} answers", written_);
      if (!items_.empty()) queue_.run_one();
    }
  }

 private:
  // Reads lines and asks until enough is under way.
  void fill() {
    while (!ended_ && again_.empty() && static_cast<int>(items_.size()) < options_.in_flight) {
      bool too_long = false;
      const auto line = read_line(in_, options_.max_line_bytes, too_long);
      ended_ = !line;
      if (ended_ || line->find_first_not_of(" \t\r") == std::string::npos) continue;
      auto item = std::make_shared<Item>();
      items_.push_back(item);
      ++counts_.requests;
      item->refused = too_long
                          ? fmt::format("the line is longer than {} bytes", options_.max_line_bytes)
                          : read(*line, *item);
      item->answered = !item->refused.empty();
      if (item->answered) {
        queue_.post([] {});
      } else {
        ask(item);
      }
    }
  }

  // "": it is a request. Messages never hold what the line says.
  std::string read(const std::string& line, Item& item) {
    const auto json = parse_json(line);
    if (!json.ok()) return "the line is not usable: " + message_of(json.status());
    if (!json->is_object()) return "the line must be a JSON object";
    const auto id = json->find("custom_id");
    if (id == json->end() || !id->is_string()) return "custom_id: must be a string";
    item.custom_id = *id;
    if (!ids_.insert(id->get<std::string>()).second) {
      return "custom_id: an earlier line has the same";
    }
    const auto method = json->find("method");
    if (method != json->end() && *method != Json("POST")) return "method: must be \"POST\"";
    const auto url = json->find("url");
    if (url == json->end() || !url->is_string() ||
        !url->get_ref<const std::string&>().starts_with('/')) {
      return "url: must be a path such as \"/v1/chat/completions\"";
    }
    const auto body = json->find("body");
    if (body == json->end() || !body->is_object()) return "body: must be an object";
    const auto stream = body->find("stream");
    if (stream != body->end() && !stream->is_null() && *stream != Json(false)) {
      return "body.stream: answers of a batch are not streamed";
    }
    item.request.method = "POST";
    item.request.target = url->get<std::string>();
    item.request.headers = {{"Content-Type", "application/json"}};
    item.request.body = dump_json(*body);
    item.request.id = new_id("batch-");
    return {};
  }

  void ask(const std::shared_ptr<Item>& item) {
    ++under_way_;
    handler_.handle(item->request, std::make_shared<ItemResponder>(
                                       queue_, item, [this, item] { take_answer(item); }));
  }

  // A full queue is no answer while others are under way: each end makes room for one more.
  void take_answer(const std::shared_ptr<Item>& item) {
    --under_way_;
    if (item->status == 429 && !item->tried_alone) {
      item->tried_alone = under_way_ == 0;
      if (under_way_ > 0) return again_.push_back(item);
      return ask(item);
    }
    item->answered = true;
    if (again_.empty()) return;
    const auto next = again_.front();
    again_.pop_front();
    ask(next);
  }

  // The answers at the front that are there.
  void write_ready() {
    bool any = false;
    for (; !items_.empty() && items_.front()->answered; items_.pop_front()) {
      write(*items_.front());
      any = true;
    }
    if (any) out_.flush();
  }

  void write(const Item& item) {
    const bool ok = item.refused.empty() && item.status == 200;
    ++(ok ? counts_.completed : counts_.failed);
    Json line = {{"id", new_id("batch_req_")}, {"custom_id", item.custom_id}};
    line["response"] = nullptr;
    line["error"] = nullptr;
    if (!item.refused.empty()) {
      line["error"] = {{"code", "invalid_line"}, {"message", item.refused}};
    } else {
      const auto body = parse_json(item.body);
      Json answer = body.ok() ? *body : Json(nullptr);
      if (!ok) {
        const auto error = answer.is_object() ? answer.find("error") : answer.end();
        const bool told = error != answer.end() && error->is_object() && error->contains("message");
        line["error"] = {{"code", std::to_string(item.status)},
                         {"message", told ? (*error)["message"] : Json("The request failed.")}};
      }
      line["response"] = {{"status_code", item.status},
                          {"request_id", item.request.id},
                          {"body", std::move(answer)}};
    }
    out_ << dump_json(line) << '\n';
    ++written_;
  }

  HttpHandler& handler_;
  std::istream& in_;
  std::ostream& out_;
  const BatchOptions options_;
  WorkQueue queue_;
  std::deque<std::shared_ptr<Item>> items_;  // in the order of the lines
  std::deque<std::shared_ptr<Item>> again_;  // of these, those that found the queue full
  std::unordered_set<std::string> ids_;
  BatchCounts counts_;
  int64_t written_ = 0;
  int under_way_ = 0;
  bool ended_ = false;
};

}  // namespace

Result<BatchCounts> run_batch(HttpHandler& handler, std::istream& in, std::ostream& out,
                              const BatchOptions& options) {
  return Batch(handler, in, out, options).run();
}

}  // namespace pagefold
