//===- Bf16.h - The ways in which the CPU multiplies bf16 -----------------===//
// A CPU with AVX512_BF16 can multiply bf16 in two ways: by native instructions, or by widening it to f32, which is
// exact, and multiplying that. CPUs differ in which way is faster: some execute vdpbf16ps at twice the rate of f32 FMA,
// some at less than half. Both ways are therefore measured when a run starts. All ranks use the way that is faster on
// the slowest rank, because their results must not differ.
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
  bool used = false; ///< Whether the program needs them; otherwise nothing is measured.
  double native = 0; ///< 0: the CPU has no such instructions, and nothing is measured.
  double inF32 = 0;
};

/// The measurements of one rank.
struct Bf16Measurement {
  Bf16Rates products; ///< Matrix products by oneDNN: its bf16 primitives, or WidenedMatmul.
  Bf16Rates kernels;  ///< Instructions of generated kernels: vdpbf16ps, or FMA.
};

/// One of two ways to multiply bf16.
struct Bf16Way {
  bool native = false;
  std::string text; ///< The choice with its reason, for users; empty if the program does not need it.
};

/// The ways that all ranks use.
struct Bf16Choice {
  Bf16Way products; ///< native: Matmul's primitives; otherwise WidenedMatmul.
  Bf16Way kernels;  ///< native: pcrt_kernel::fn; otherwise fn_f32 if there is one.
};

/// Measures the rates that the program needs, in this thread, for about 20 ms.
Bf16Measurement measureBf16(const Bf16Uses &uses);

/// Returns the choice for ranks with these measurements. PCRT_CPU_BF16=0 or 1 overrides the choice. Throws if the
/// variable asks for instructions that a rank lacks.
Bf16Choice chooseBf16(const std::vector<Bf16Measurement> &ofRanks);

/// The texts of the ways that are used, by name ("products", "kernels").
Json describe(const Bf16Choice &choice);

/// Measures and chooses for all ranks of `comm`; they all call it.
Bf16Choice agreeOnBf16(const Bf16Uses &uses, Comm &comm);

} // namespace pcrt

#endif // PCRT_CPU_BF16_H
