#include "kv/word_check.h"

namespace pagefold {

Status check_kv_words(const KvWords& words, KvLimits limits, int block_size) {
  KvModel any;
  any.n_layers = 32;
  any.n_heads = 32;
  any.n_kv_heads = 8;
  any.head_dim = 128;
  any.block_size = block_size;
  limits.sizing = true;
  return parse_kv_options(words, {}, any, limits, 0).status();
}

}  // namespace pagefold
