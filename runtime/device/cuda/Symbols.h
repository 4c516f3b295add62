//===- Symbols.h - tables of functions that are loaded at run time --------===//
//
// A library's functions are one line each: result, member, exported name,
// parameters. Our own declarations, so that the runtime builds the same
// everywhere; test/Runtime/cuda compares them with NVIDIA's headers.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_DEVICE_CUDA_SYMBOLS_H
#define PCRT_DEVICE_CUDA_SYMBOLS_H

/// Expansions of a table's lines.
#define PCRT_SYMBOL_MEMBER(result, member, symbol, ...) result (*member)(__VA_ARGS__) = nullptr;
#define PCRT_SYMBOL_REQUIRED(result, member, symbol, ...) {#symbol, reinterpret_cast<void **>(&member), true},
#define PCRT_SYMBOL_OPTIONAL(result, member, symbol, ...) {#symbol, reinterpret_cast<void **>(&member), false},

namespace pcrt::cuda {

/// Where the address of one exported name goes.
struct Symbol {
  const char *name;
  void **address;
  bool required; ///< Others may be absent from old versions; their members stay null.
};

} // namespace pcrt::cuda

#endif // PCRT_DEVICE_CUDA_SYMBOLS_H
