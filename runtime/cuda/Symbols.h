//===- Symbols.h - Tables of functions that are loaded at run time --------===//
// A library's functions are one line each: result, exported name, parameters. Calls also use the exported name:
// driver.cuStreamSynchronize(stream). The declarations are our own, for a runtime that builds the same everywhere;
// test/Runtime/cuda compares them with NVIDIA's headers.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_SYMBOLS_H
#define PCRT_CUDA_SYMBOLS_H

/// Expansions of a table's lines.
#define PCRT_SYMBOL_MEMBER(result, symbol, ...) result (*symbol)(__VA_ARGS__) = nullptr;
#define PCRT_SYMBOL_REQUIRED(result, symbol, ...) {#symbol, reinterpret_cast<void **>(&symbol), true},
#define PCRT_SYMBOL_OPTIONAL(result, symbol, ...) {#symbol, reinterpret_cast<void **>(&symbol), false},

namespace pcrt::cuda {

/// An exported name, and the place to which its address is written.
struct Symbol {
  const char *name;
  void **address;
  bool required; ///< Others may be absent from old versions; their members stay null.
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_SYMBOLS_H
