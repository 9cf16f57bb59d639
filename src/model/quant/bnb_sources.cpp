// bitsandbytes: 4-bit codes of a flattened matrix with block maxima; int8 with a maximum a row.
#include <cmath>
#include <numeric>

#include "formats/quant/bitsandbytes.h"
#include "model/quant/grouped_source.h"

namespace pagefold {
namespace {

class Bnb4Source final : public GroupedSource {
 public:
  struct Parts {
    const TensorInfo *weight, *absmax;
    NestedAbsmax nested;  // codes null: absmax are floats
    int64_t blocksize;
    std::array<float, 16> table;
  };
  Bnb4Source(const Parts& p, int64_t n_out, int64_t n_in, int group)
      : GroupedSource(n_out, n_in), p_(p) {
    quant_ = {.bits = 4,
              .group = group,
              .scale_f16 = false,
              .values = QuantValues::table,
              .table = p.table,
              .wants_16bit = true};
  }
  void row_quant(int64_t row, int8_t* q, float* scale, float*) const override {
    bnb4_codes(p_.weight->data.data(), row * n_in_, n_in_, q);
    for (size_t g = 0; g < groups(); ++g) {
      const int64_t block = (row * n_in_ + static_cast<int64_t>(g) * quant_.group) / p_.blocksize;
      if (p_.nested.codes) {
        bnb4_nested_absmax(p_.nested, block, 1, scale + g);
      } else {
        scale[g] = plain_value(p_.absmax->type, p_.absmax->data.data(), block);
      }
    }
  }

 private:
  Parts p_;
};

class Bnb8Source final : public GroupedSource {
 public:
  Bnb8Source(const TensorInfo& weight, const TensorInfo& scb, int64_t n_out, int64_t n_in)
      : GroupedSource(n_out, n_in), weight_(&weight), scb_(&scb) {
    quant_ = {.bits = 8, .group = static_cast<int>(n_in), .scale_f16 = false, .wants_16bit = true};
  }
  void row_quant(int64_t row, int8_t* q, float* scale, float*) const override {
    std::copy_n(reinterpret_cast<const int8_t*>(weight_->data.data()) + row * n_in_, n_in_, q);
    *scale = bnb8_scale(plain_value(scb_->type, scb_->data.data(), row));
  }

 private:
  const TensorInfo *weight_, *scb_;
};

struct StateTensor {
  Bnb4State state;
  const TensorInfo* tensor;
};
Result<StateTensor> take_state(const LayerTensors& l) {
  for (const char* kind : {"nf4", "fp4"}) {
    const TensorInfo* t = l.optional(fmt::format("weight.quant_state.bitsandbytes__{}", kind));
    if (!t) continue;
    PF_TRY(expect_type(*t, {TensorType::U8}));
    auto state = parse_bnb4_state(t->data);
    if (!state.ok()) return tensor_error(*t, state.status());
    if (state->quant_type != kind)
      return tensor_error(*t, bad_data("its quant_type is {}", state->quant_type));
    if (state->shape != Shape{l.n_out, l.n_in}) {
      return tensor_error(*t,
                          bad_data("its shape is not the {} x {} of the layer", l.n_out, l.n_in));
    }
    return StateTensor{*std::move(state), t};
  }
  return l.required("weight.quant_state.bitsandbytes__nf4").status();
}

// A float32 tensor of n finite numbers.
Result<const TensorInfo*> take_floats(const LayerTensors& l, std::string_view part, int64_t n) {
  PF_ASSIGN(const TensorInfo* t, l.required(part));
  PF_TRY(expect_type(*t, {TensorType::F32}));
  PF_TRY(expect_shape(*t, {n}));
  PF_TRY(check_scales(*t).status());
  return t;
}

Status take_absmax(const LayerTensors& l, const Bnb4State& s, Bnb4Source::Parts& p) {
  const int64_t blocks = (l.n_out * l.n_in + s.blocksize - 1) / s.blocksize;
  if (!s.nested) {
    PF_ASSIGN(p.absmax, take_floats(l, "weight.absmax", blocks));
    return ok_status();
  }
  PF_ASSIGN(p.absmax, l.required("weight.absmax"));
  PF_TRY(expect_type(*p.absmax, {TensorType::U8}));
  PF_TRY(expect_shape(*p.absmax, {blocks}));
  PF_ASSIGN(const TensorInfo* map, take_floats(l, "weight.nested_quant_map", 256));
  const int64_t outer = (blocks + s.nested_blocksize - 1) / s.nested_blocksize;
  PF_ASSIGN(const TensorInfo* absmax, take_floats(l, "weight.nested_absmax", outer));
  p.nested = {p.absmax->data.data(), map->data.data(), absmax->data.data(), s.nested_blocksize,
              s.nested_offset};
  return ok_status();
}

}  // namespace

LinearResult make_bnb4_source(const LayerTensors& l) {
  Bnb4Source::Parts p{};
  PF_ASSIGN(p.weight, l.required("weight"));
  PF_ASSIGN(const StateTensor s, take_state(l));
  // Any storage type: the bytes are the same.
  const auto bytes = static_cast<uint64_t>((l.n_out * l.n_in + 1) / 2);
  if (p.weight->data.size() != bytes) {
    return tensor_error(*p.weight, bad_data("has {} bytes, {} x {} weights of 4 bits need {}",
                                            p.weight->data.size(), l.n_out, l.n_in, bytes));
  }
  PF_TRY(take_absmax(l, s.state, p));
  PF_ASSIGN(const TensorInfo* map, take_floats(l, "weight.quant_map", 16));
  for (size_t i = 0; i < 16; ++i)
    p.table[i] = plain_value(map->type, map->data.data(), static_cast<int64_t>(i));
  p.blocksize = s.state.blocksize;
  PF_ASSIGN(const int group, packed_group(l, p.blocksize));
  return std::make_unique<Bnb4Source>(p, l.n_out, l.n_in, group);
}

LinearResult make_bnb8_source(const LayerTensors& l) {
  PF_ASSIGN(const TensorInfo* weight, l.required("weight"));
  PF_TRY(expect_type(*weight, {TensorType::I8}));
  PF_TRY(expect_shape(*weight, {l.n_out, l.n_in}));
  PF_ASSIGN(const TensorInfo* scb, take_floats(l, "SCB", l.n_out));
  if (const TensorInfo* format = l.optional("weight_format")) {
    PF_TRY(expect_type(*format, {TensorType::U8}));
    if (format->elements() != 1 || format->data[0] != std::byte{0}) {
      return tensor_error(*format, unsupported("only weights stored row by row (0) are supported"));
    }
  }
  return std::make_unique<Bnb8Source>(*weight, *scb, l.n_out, l.n_in);
}

}  // namespace pagefold
