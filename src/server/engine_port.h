// What the server needs of an engine. The real one is behind it in serving, a scripted one in
// tests.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "engine/engine.h"

namespace pagefold {

class EnginePort {
 public:
  virtual ~EnginePort() = default;
  virtual Result<std::shared_ptr<Generation>> submit(Request request) = 0;
  virtual EngineMetrics metrics() const = 0;
  virtual const EngineConfig& config() const = 0;
  virtual int64_t kv_capacity_tokens() const = 0;
  // See EngineCore::watch.
  virtual void watch(std::function<void(std::shared_ptr<const EngineState>)> callback) = 0;
};

class EngineCorePort final : public EnginePort {
 public:
  explicit EngineCorePort(EngineCore& engine) : engine_(engine) {}
  Result<std::shared_ptr<Generation>> submit(Request request) override {
    return engine_.submit(std::move(request));
  }
  EngineMetrics metrics() const override { return engine_.metrics(); }
  const EngineConfig& config() const override { return engine_.config(); }
  int64_t kv_capacity_tokens() const override { return engine_.kv_capacity_tokens(); }
  void watch(std::function<void(std::shared_ptr<const EngineState>)> callback) override {
    engine_.watch(std::move(callback));
  }

 private:
  EngineCore& engine_;
};

}  // namespace pagefold
