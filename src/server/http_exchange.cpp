#include "server/http_exchange.h"

#include <boost/asio/post.hpp>

#include "base/check.h"

namespace pagefold {

void Exchange::begin(int status, HttpHeaders& headers) {
  PF_CHECK(!started_, "an answer was begun twice");
  started_ = true;
  status_ = status;
  headers.insert(headers.end(), wire_.headers.begin(), wire_.headers.end());
}

void Exchange::send(int status, HttpHeaders headers, std::string body) {
  begin(status, headers);
  body_bytes_ = body.size();
  HttpFraming framing{.keep_alive = wire_.keep_alive, .http10 = wire_.http10};
  if (status != 204) framing.length = static_cast<long long>(body.size());
  out_ += http_head(status, headers, framing);
  if (!wire_.head && status != 204) out_ += body;
  complete();
}

void Exchange::begin_stream(int status, HttpHeaders headers) {
  begin(status, headers);
  chunked_ = !wire_.http10;
  if (wire_.http10) wire_.keep_alive = false;  // without chunks only the close marks the end
  out_ += http_head(status, headers,
                    {.keep_alive = wire_.keep_alive, .chunked = chunked_, .http10 = wire_.http10});
  wake_.cancel();
}

void Exchange::write(std::string_view chunk) {
  PF_CHECK(started_ && !ended_, "write outside an answer");
  if (closed_ || wire_.head) return;
  body_bytes_ += chunk.size();
  if (chunked_) {
    append_http_chunk(out_, chunk);
  } else {
    out_ += chunk;
  }
  wake_.cancel();
}

void Exchange::end() {
  PF_CHECK(started_ && !ended_, "end outside an answer");
  if (chunked_ && !wire_.head) out_ += "0\r\n\r\n";
  complete();
}

// The callbacks keep the producer alive; nothing calls them after the end.
void Exchange::complete() {
  ended_ = true;
  on_writable_ = nullptr;
  on_closed_ = nullptr;
  on_stopping_ = nullptr;
  wake_.cancel();
}

void Exchange::on_writable(std::function<void()> callback) {
  if (!ended_ && !closed_) on_writable_ = std::move(callback);
}

void Exchange::on_closed(std::function<void()> callback) {
  if (ended_) return;
  if (closed_) {
    net::post(strand_, std::move(callback));
  } else {
    on_closed_ = std::move(callback);
  }
}

void Exchange::on_stopping(std::function<void()> callback) {
  if (!ended_ && !closed_) on_stopping_ = std::move(callback);
}

void Exchange::post(std::function<void()> work) { net::post(strand_, std::move(work)); }

std::string Exchange::take_output() {
  in_flight_ = out_.size();
  return std::exchange(out_, {});
}

void Exchange::written(size_t n) {
  const bool was_full = queued_bytes() >= max_queued_;
  in_flight_ -= n;
  // Half empty is soon enough: the socket's own buffer is still full then.
  if (in_flight_ == 0 || (was_full && queued_bytes() < max_queued_)) {
    if (auto callback = on_writable_) callback();  // a copy: the callback may end the answer
  }
}

void Exchange::client_left() {
  if (closed_) return;
  closed_ = true;
  out_.clear();
  auto callback = std::exchange(on_closed_, nullptr);
  on_writable_ = nullptr;
  on_stopping_ = nullptr;
  if (callback && !ended_) callback();
}

void Exchange::give_up() {
  if (auto callback = std::exchange(on_stopping_, nullptr)) callback();
}

}  // namespace pagefold
