// The block-Hadamard rotation of keys and queries for int4 and fp8 caches. The largest power of two
// that divides head_dim is the size of a block (80 = 5 x 16). The matrix is symmetric and
// orthonormal: products of rotated vectors are those of the vectors, and rotating twice gives them
// back. No dimension stands out afterwards: what 4 bits a dimension need (QuaRot, arXiv
// 2404.00456), and fp8, whose error is largest where a dimension is large and its query is too.
#pragma once

#include <cstdint>

namespace pagefold::cpu {

// x[dim][stride], in place, along the first index: stride 1 rotates one vector, stride 16 a strip
// of 16 keys. dim is a multiple of 8.
void rotate_hadamard(float* x, int dim, int stride);

}  // namespace pagefold::cpu
