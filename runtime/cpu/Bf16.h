//===- Bf16.h - How the CPU multiplies bf16 -------------------------------===//
// A CPU with AVX512_BF16 can multiply bf16 by instructions of its own, or widen it to f32, which is exact, and multiply
// that. CPUs differ in which is faster: some execute vdpbf16ps at twice the rate of f32 FMA, some at less than half. So
// both are measured when a run starts, and all ranks use what suits the slowest of them: their results must not differ.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CPU_BF16_H
#define PCRT_CPU_BF16_H

#include "base/Program.h"
#include "comm/Comm.h"

#include <string>
#include <vector>

namespace pcrt {

/// Whether a program multiplies bf16 in matrix products, and in kernels that have two forms.
struct Bf16Uses {
  bool products = false, kernels = false;
  void add(const pcrt_program &program);
};

/// Multiply-adds per nanosecond of one thread.
struct Bf16Rates {
  bool used = false; ///< If not, nothing is measured.
  double native = 0; ///< 0: the CPU has no such instructions, and nothing is measured.
  double inF32 = 0;
};

/// What a rank measures.
struct Bf16Measurement {
  Bf16Rates products; ///< Matrix products by oneDNN: its bf16 primitives, or WidenedMatmul.
  Bf16Rates kernels;  ///< Instructions of generated kernels: vdpbf16ps, or FMA.
};

/// One of two ways to multiply bf16.
struct Bf16Way {
  bool native = false;
  std::string text; ///< For users, with the reason; empty if the program does not need it.
};

struct Bf16Choice {
  Bf16Way products; ///< native: Matmul's primitives; else WidenedMatmul.
  Bf16Way kernels;  ///< native: pcrt_kernel::fn; else fn_f32 where there is one.
};

/// Measures what is used, in this thread, for some 20 ms.
Bf16Measurement measureBf16(const Bf16Uses &uses);

/// The choice for ranks that measured this. PCRT_CPU_BF16=0 or 1 overrides it. Throws if that asks for instructions
/// that a rank lacks.
Bf16Choice chooseBf16(const std::vector<Bf16Measurement> &ofRanks);

/// The ways that are used, by name ("products", "kernels"), in words.
Json describe(const Bf16Choice &choice);

/// Measures and chooses for all ranks of `comm`; they all call it.
Bf16Choice agreeOnBf16(const Bf16Uses &uses, Comm &comm);

} // namespace pcrt

#endif // PCRT_CPU_BF16_H
