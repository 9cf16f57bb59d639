// A CPU backend whose cache holds known keys and values on scattered blocks: rows are appended by
// attention() itself, from an embedding table that spells out q, k and v.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "backend/backend.h"

namespace pagefold::test {

struct CacheCase {
  int n_layers = 1, n_heads = 2, n_kv_heads = 1, head_dim = 16, block_size = 16;
  DType dtype = DType::f32;
  int rows = 40, spare_blocks = 8;
  int threads = 2;
};

class RowSource final : public MatrixSource {
 public:
  RowSource(const std::vector<float>& values, int64_t cols) : values_(values), cols_(cols) {}
  int64_t n_out() const override { return static_cast<int64_t>(values_.size()) / cols_; }
  int64_t n_in() const override { return cols_; }
  DType stored_dtype() const override { return DType::f32; }
  const QuantSource* quant() const override { return nullptr; }
  void row_f32(int64_t row, float* out) const override {
    std::copy_n(values_.data() + row * cols_, cols_, out);
  }
  void row_quant(int64_t, int8_t*, float*, float*) const override {}

 private:
  const std::vector<float>& values_;
  int64_t cols_;
};

class CachedRows {
 public:
  explicit CachedRows(const CacheCase& c, const std::vector<float>* keys = nullptr) : c_(c) {
    CpuBackendOptions o;
    o.threads = c.threads;
    o.dtype = DType::f32;
    backend_ = *make_cpu_backend(o);
    const int blocks = (c.rows + c.block_size - 1) / c.block_size;
    const int n_tables = c.n_layers * c.n_kv_heads;
    KvShape kv{c.n_layers,
               c.n_kv_heads,
               c.head_dim,
               c.block_size,
               c.dtype,
               c.dtype,
               static_cast<uint32_t>(blocks * n_tables + c.spare_blocks)};
    EXPECT_TRUE(backend_->init_kv(kv).ok());
    std::vector<BlockId> ids(kv.n_blocks);
    std::iota(ids.begin(), ids.end(), 0u);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(17));
    for (int t = 0; t < n_tables; ++t)
      ids_.emplace_back(ids.begin() + t * blocks, ids.begin() + (t + 1) * blocks);
    spare_.assign(ids.begin() + n_tables * blocks, ids.end());
    EXPECT_TRUE(backend_->blocks_taken(ids).ok());
    std::mt19937 rng(5);
    std::normal_distribution<float> normal;
    values_.resize(static_cast<size_t>(c.n_layers * c.rows * cols()));
    for (float& v : values_) v = normal(rng);
    if (keys != nullptr) set_keys(*keys);
    append();
  }

  Backend& backend() { return *backend_; }
  int64_t cols() const { return (c_.n_heads + 2 * c_.n_kv_heads) * c_.head_dim; }
  const float* key(int layer, int head, int row) const {
    return at(layer, row) + (c_.n_heads + head) * c_.head_dim;
  }
  const float* value(int layer, int head, int row) const {
    return at(layer, row) + (c_.n_heads + c_.n_kv_heads + head) * c_.head_dim;
  }
  std::vector<BlockId>& blocks(int table) { return ids_[static_cast<size_t>(table)]; }
  const std::vector<BlockId>& spare() const { return spare_; }
  std::vector<TableView> views(int64_t len) const {
    std::vector<TableView> v;
    for (const auto& t : ids_) v.push_back({t.data(), len, 0, nullptr});
    return v;
  }

 private:
  // keys: [n_kv_heads][rows][head_dim] of layer 0
  void set_keys(const std::vector<float>& keys) {
    for (int h = 0; h < c_.n_kv_heads; ++h) {
      for (int r = 0; r < c_.rows; ++r)
        std::copy_n(keys.data() + (h * c_.rows + r) * c_.head_dim, c_.head_dim,
                    const_cast<float*>(key(0, h, r)));
    }
  }
  const float* at(int layer, int row) const {
    return values_.data() + (layer * c_.rows + row) * cols();
  }
  void append() {
    const RowSource source(values_, cols());
    const MatrixSource* parts[] = {&source};
    const MatrixId table = *backend_->load_matrix(parts);
    EXPECT_TRUE(backend_->init_step({c_.rows, 1, 1}).ok());
    const BufferId qkv = *backend_->make_buffer(cols()),
                   out = *backend_->make_buffer(c_.n_heads * c_.head_dim);
    const std::vector<float> ones(static_cast<size_t>(c_.rows * c_.head_dim / 2), 1.0f),
        zeros(ones.size(), 0.0f);
    const auto tables = views(0);
    for (int l = 0; l < c_.n_layers; ++l) {
      std::vector<int32_t> tokens(static_cast<size_t>(c_.rows));
      std::iota(tokens.begin(), tokens.end(), l * c_.rows);
      backend_->embed(tokens, table, 1.0f, qkv);
      SeqRows rows;
      rows.n_rows = c_.rows;
      rows.tables = tables.data();
      backend_->attention(l, std::span(&rows, 1), qkv,
                          {c_.n_heads, c_.n_kv_heads, c_.head_dim, 1, 0},
                          {c_.head_dim, true, ones.data(), zeros.data()}, {}, {}, 0, out);
    }
  }

  CacheCase c_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::vector<BlockId>> ids_;
  std::vector<BlockId> spare_;
  std::vector<float> values_;
};

}  // namespace pagefold::test
