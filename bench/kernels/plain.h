//===- plain.h - The special kernels as plain C++ loops -------------------===//
// Compiled with -O3 -march=native -ffast-math, to show what a C++ compiler makes of plain loops. Signature and argument
// order are those of compiled kernels; each function states its items.
//===----------------------------------------------------------------------===//
#ifndef PC_BENCH_KERNELS_PLAIN_H
#define PC_BENCH_KERNELS_PLAIN_H

#include <cstdint>

namespace plain {
/// The shapes of GPT-2 124M at batch 4 and 256 tokens.
constexpr int64_t batch = 4, tokens = 256, heads = 12, headDim = 64, rows = batch * tokens, width = heads * headDim,
                  vocabulary = 50304;
constexpr float scale = 0.125f;

using Args = void *const *;
int64_t attention(Args args, int64_t lo, int64_t hi, void *scratch);     ///< an item is a head; causal
int64_t attentionGrad(Args args, int64_t lo, int64_t hi, void *scratch); ///< an item is a head; causal
int64_t layerNormGrad(Args args, int64_t lo, int64_t hi,
                      void *scratch);                                ///< an item is a row; gamma and beta per thread
int64_t embedding(Args args, int64_t lo, int64_t hi, void *scratch); ///< an item is an id
int64_t embeddingGrad(Args args, int64_t lo, int64_t hi, void *scratch); ///< an item is a column
int64_t adamw(Args args, int64_t lo, int64_t hi, void *scratch);         ///< an item is an element
int64_t rope(Args args, int64_t lo, int64_t hi, void *scratch);          ///< an item is a token
int64_t recurrence(Args args, int64_t lo, int64_t hi, void *scratch);    ///< an item is a sequence
} // namespace plain

#endif
