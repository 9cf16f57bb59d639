// Operations on cached keys outside attention: reading them back, scoring them, moving slots.
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "base/half.h"

namespace pagefold::cpu {
namespace {

float load_as_float(const std::byte* p, DType t) {
  if (t == DType::f32) {
    float f;
    std::memcpy(&f, p, 4);
    return f;
  }
  uint16_t h;
  std::memcpy(&h, p, 2);
  return t == DType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
}

// Byte offset of dim d of a slot's key within its strip: [d][16], or [d / 2][16][2] for bfloat16.
size_t key_offset(const kernels::KvLayout& l, int slot, int d) {
  if (l.k_dtype == DType::bf16) return static_cast<size_t>(((d / 2) * 16 + slot) * 2 + d % 2) * 2;
  return static_cast<size_t>(d * 16 + slot) * dtype_bytes(l.k_dtype);
}

// The same for a value, after the strip's keys: [slot][dim], or [slot / 2][dim][2] for bfloat16.
size_t value_offset(const kernels::KvLayout& l, int slot, int d) {
  const size_t at = l.v_dtype == DType::bf16
                        ? static_cast<size_t>(((slot / 2) * l.head_dim + d) * 2 + slot % 2) * 2
                        : static_cast<size_t>(slot * l.head_dim + d) * dtype_bytes(l.v_dtype);
  return l.k_strip_bytes() + at;
}

std::byte* strip_of(const KvArena& arena, const BlockId* blocks, int64_t slot) {
  const kernels::KvLayout& l = arena.layout();
  const int64_t in_block = slot % l.block_size;
  return arena.base() + blocks[slot / l.block_size] * l.block_bytes() +
         static_cast<size_t>(in_block / kernels::kStripSlots) * l.strip_bytes();
}

void move_slot(const KvArena& arena, const BlockId* blocks, int64_t from, int64_t to) {
  const kernels::KvLayout& l = arena.layout();
  const std::byte* a = strip_of(arena, blocks, from);
  std::byte* b = strip_of(arena, blocks, to);
  const int i = static_cast<int>(from % kernels::kStripSlots),
            j = static_cast<int>(to % kernels::kStripSlots);
  for (int d = 0; d < l.head_dim; ++d) {
    std::memcpy(b + key_offset(l, j, d), a + key_offset(l, i, d), dtype_bytes(l.k_dtype));
    std::memcpy(b + value_offset(l, j, d), a + value_offset(l, i, d), dtype_bytes(l.v_dtype));
  }
}

}  // namespace

void CpuBackend::read_keys(const TableView& table, int64_t n, float* out) {
  const kernels::KvLayout& l = arena_.layout();
  for (int64_t slot = 0; slot < n; ++slot) {
    const std::byte* strip = strip_of(arena_, table.blocks, slot);
    for (int d = 0; d < l.head_dim; ++d) {
      out[slot * l.head_dim + d] = load_as_float(
          strip + key_offset(l, static_cast<int>(slot % kernels::kStripSlots), d), l.k_dtype);
    }
  }
}

void CpuBackend::score_keys(const TableView& table, int64_t n, const KeyCoefficients& c,
                            float* const* out) {
  std::vector<float> keys(static_cast<size_t>(n * arena_.layout().head_dim));
  read_keys(table, n, keys.data());
  for (int64_t slot = 0; slot < n; ++slot) {
    const float* k = keys.data() + slot * arena_.layout().head_dim;
    for (int g = 0; g < c.group; ++g) {
      float sum = 0;
      for (int f = 0; f < c.bands; ++f) {
        const float re = c.half_layout ? k[f] : k[2 * f],
                    im = c.half_layout ? k[f + c.bands] : k[2 * f + 1];
        const int i = g * c.bands + f;
        sum += c.re[i] * re + c.im[i] * im + c.norm[i] * std::sqrt(re * re + im * im);
      }
      out[g][slot] = sum;
    }
  }
}

void CpuBackend::key_logits(const TableView& table, int64_t n, const float* queries, int n_queries,
                            float scale, float* out) {
  const int dim = arena_.layout().head_dim;
  std::vector<float> keys(static_cast<size_t>(n * dim));
  read_keys(table, n, keys.data());
  for (int q = 0; q < n_queries; ++q) {
    for (int64_t slot = 0; slot < n; ++slot) {
      float sum = 0;
      for (int d = 0; d < dim; ++d)
        sum += queries[q * dim + d] * keys[static_cast<size_t>(slot * dim + d)];
      out[q * n + slot] = sum * scale;
    }
  }
}

void CpuBackend::move_slots(const MovePlan& plan, const TableView* tables, int n_kv_heads) {
  for_rows(static_cast<int64_t>(plan.tables.size()), 1 << 20, [&](int64_t i) {
    const TableMoves& t = plan.tables[static_cast<size_t>(i)];
    const TableView& view = tables[t.layer * n_kv_heads + t.head];
    std::vector<BlockId> blocks(
        view.blocks,
        view.blocks + (t.len_before + arena_.layout().block_size - 1) / arena_.layout().block_size);
    for (const TableMoves::Copy& copy : t.copies) {
      std::memcpy(arena_.base() + copy.to * block_bytes(),
                  arena_.base() + copy.from * block_bytes(), block_bytes());
      blocks[static_cast<size_t>(copy.index)] = copy.to;
    }
    for (const SlotMove& m : t.moves) move_slot(arena_, blocks.data(), m.from, m.to);
  });
}

}  // namespace pagefold::cpu
