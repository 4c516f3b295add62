//===- KernelReport.h - What the kernels of a CUDA step move, before anything runs --------===//
// Input: a planned CUDA program and a machine. Result: per kernel, the bytes that it reads and writes, its flops and
// its predicted seconds. Bytes of own kernels are counted from their code, not measured.
//===-----------------------------------------------------------------------------===//
#ifndef PC_CODEGEN_KERNELREPORT_H
#define PC_CODEGEN_KERNELREPORT_H

#include "pc/Codegen/Passes.h"
#include "pc/Cost/Simulate.h"

namespace pc {

/// What a step of one rank launches. Bytes and flops are sums over all launches of a step; seconds are the machine
/// model's.
struct KernelReport {
  /// A row for each distinct kernel of the program's own, matrix product and attention of a library, most seconds
  /// first. `kernel` and `kind`; `op`, the first of those that it computes; `stage` where there are some; `launches`.
  /// Sums over all launches: `read_bytes` and `written_bytes`, counted from the code of own kernels (`countAccesses`),
  /// or a library's operands and results; `distinct_bytes`, where each of the kernel's operands and results counts at
  /// most once per launch; `flops` of products. For own kernels: `blocks`, `threads` of a block, and `access_bytes`,
  /// the narrowest access that makes a tenth of the kernel's bytes or more. `seconds`, on the machine: the longer of
  /// computing and of moving the bytes.
  llvm::json::Array kernels;
  /// `bytes` of the result of an attention, and how many a step computes (`count`), layers times microbatches. Traffic
  /// in units of these compares with published figures. 0 and 0 without attention.
  llvm::json::Object activation;
  /// The seconds by kind, and `launches`, what they take by themselves.
  llvm::json::Object parts;
  /// For each op of the program that computes, the seconds of all that it launches.
  OpSeconds seconds;
};

/// Writes the kernels of a planned CUDA program, which stays as it is, and reports what a step of one rank does with
/// them. Fails, with an error, if the program is not planned, or at a kernel that cannot be counted.
llvm::FailureOr<KernelReport> reportKernels(mlir::ModuleOp planned, const GenerateKernelsOptions &options,
                                            const MachineModel &machine);

} // namespace pc

#endif
