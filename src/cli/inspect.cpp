#include <algorithm>

#include "cli/command.h"
#include "cli/describe.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/pull/cache.h"
#include "model/quant/activation_choice.h"

namespace pagefold {
namespace {

struct Controls {
  DType dtype = DType::bf16;
  KvFormat kv;
  int group = kAutoKvGroup;  // as it was asked for
  std::string quantization, activations;
};

// The same rules as loading.
Result<Controls> resolve(const ModelDescription& d, const InspectCommand& command) {
  Controls c;
  PF_ASSIGN(const DTypeChoice choice, choose_dtype(command.dtype, d.stored));
  c.dtype = choice.dtype;
  c.group = command.kv.group;
  PF_ASSIGN(c.kv, resolve_kv_format(command.kv, c.dtype, d.kv));
  PF_ASSIGN(const QuantConfig quant, choose_quantization(command.quantization, d.quant));
  c.quantization = quant.description();
  PF_ASSIGN(const Activations wanted, parse_activations(command.activations));
  PF_ASSIGN(const Activations a, choose_activations(quant, d.types, wanted));
  c.activations = a == Activations::int8 ? "int8" : "16";
  return c;
}

constexpr DType kKvTypes[] = {DType::f32,      DType::f16,  DType::bf16, DType::fp8_e4m3,
                              DType::fp8_e5m2, DType::int8, DType::int4};

// With the group that this type would have.
uint64_t bytes_with(const ModelDescription& d, const Controls& c, DType type) {
  return d.kv_bytes_per_token({type, type, kv_group_of(c.group, type)});
}

Json kv_bytes_json(const ModelDescription& d, const Controls& c) {
  Json bytes = Json::object();
  for (const DType type : kKvTypes) bytes[std::string(dtype_name(type))] = bytes_with(d, c, type);
  return bytes;
}

Json dims_json(const ModelDescription& d) {
  Json dims = {{"layers", d.n_layers},
               {"heads", d.n_heads},
               {"head_dim", d.key_dim},
               {"hidden", d.hidden},
               {"ffn", d.ffn},
               {"vocab", d.vocab_size},
               {"context", d.context_length},
               {"sliding_window", d.sliding_window},
               {"rope_base", d.rope_base}};
  const bool even = std::all_of(d.kv_heads.begin(), d.kv_heads.end(),
                                [&](int64_t h) { return h == d.kv_heads.front(); });
  if (even && !d.kv_heads.empty()) {
    dims["kv_heads"] = d.kv_heads.front();
  } else {
    dims["kv_heads"] = d.kv_heads;
  }
  if (d.value_dim != d.key_dim) dims["value_dim"] = d.value_dim;
  return dims;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out;
  for (const int64_t n : shape) out += (out.empty() ? "" : " x ") + std::to_string(n);
  return "[" + out + "]";
}

Json tensors_json(const ModelDescription& d) {
  Json list = Json::array();
  for (const TensorLine& t : d.tensors) {
    list.push_back({{"name", t.name}, {"type", t.type}, {"shape", t.shape}, {"bytes", t.bytes}});
  }
  return list;
}

Json to_json(const ModelDescription& d, const Controls& c) {
  Json metadata = Json::object();
  for (const auto& [key, value] : d.metadata) metadata[key] = value;
  return {{"path", d.path},
          {"format", d.format},
          {"architecture", d.architecture},
          {"dims", dims_json(d)},
          {"parameters", d.parameters()},
          {"weights_bytes", d.weight_bytes()},
          {"weight_format", d.weight_format()},
          {"bits_per_weight", d.bits_per_weight()},
          {"quantization_problem", d.quant_problem.empty() ? Json(nullptr) : Json(d.quant_problem)},
          {"kv_bytes_per_token", kv_bytes_json(d, c)},
          {"controls",
           {{"dtype", dtype_name(c.dtype)},
            {"quantization", c.quantization},
            {"kv_cache_dtype", dtype_name(c.kv.k)},
            {"kv_cache_dtype_v", dtype_name(c.kv.v)},
            {"kv_cache_group", c.kv.group},
            {"kv_bytes_per_token", d.kv_bytes_per_token(c.kv)},
            {"activations", c.activations}}},
          {"chat_template", d.chat_template.empty() ? Json(nullptr) : Json(d.chat_template)},
          {"metadata", std::move(metadata)},
          {"tensors", tensors_json(d)}};
}

std::string to_text(const ModelDescription& d, const Controls& c, bool all_tensors) {
  std::string out = fmt::format("{}\n\n", d.path);
  for (const auto& [key, value] : d.metadata) out += fmt::format("  {} = {}\n", key, value);
  out +=
      fmt::format("\narchitecture    {}\n", d.architecture.empty() ? "not named" : d.architecture);
  const Json dims = dims_json(d);
  for (const auto& [key, value] : dims.items()) {
    out += fmt::format("{:<16}{}\n", key, dump_json(value));
  }
  out += fmt::format(
      "weights         {} parameters in {} tensors, {}, mostly {}, {:.3f} bits a weight\n",
      grouped(static_cast<uint64_t>(d.parameters())), d.tensors.size(),
      human_bytes(static_cast<double>(d.weight_bytes())), d.weight_format(), d.bits_per_weight());
  if (!d.quant_problem.empty()) out += fmt::format("cannot be run   {}\n", d.quant_problem);
  out += "KV cache        bytes a token:";
  for (const DType type : kKvTypes) {
    out += fmt::format(" {} {}{}", dtype_name(type), grouped(bytes_with(d, c, type)),
                       type == DType::int4 ? "\n" : ",");
  }
  out += fmt::format(
      "would run with  dtype {}, quantization {}, kv-cache-dtype {} ({} bytes a token), "
      "activations "
      "{}\n",
      dtype_name(c.dtype), c.quantization, c.kv.name(), grouped(d.kv_bytes_per_token(c.kv)),
      c.activations);
  out += d.chat_template.empty() ? "chat template   none\n"
                                 : fmt::format("chat template   {}\n", d.chat_template);
  if (all_tensors) {
    out += "\ntensors\n";
    for (const TensorLine& t : d.tensors) {
      out += fmt::format("  {:<44} {:<8} {}\n", t.name, t.type, shape_text(t.shape));
    }
  }
  return out;
}

Status inspect(const InspectCommand& command) {
  PF_ASSIGN(const std::string path, resolve_model(command.model));
  PF_ASSIGN(const ModelDescription d, describe_model(path));
  PF_ASSIGN(const Controls controls, resolve(d, command));
  print_text(stdout, command.json ? dump_json(to_json(d, controls)) + "\n"
                                  : to_text(d, controls, command.tensors));
  return stdout_ok() ? ok_status() : io_error("standard output does not take the answer");
}

}  // namespace

int run_inspect(const InspectCommand& command) {
  const Status done = inspect(command);
  return done.ok() ? kDone : report(done);
}

}  // namespace pagefold
