//===- KernelReport.h - What the kernels of a CUDA step move, before anything runs --------===//
// Input: a planned CUDA program and a machine. Result: for each kernel, the bytes that it reads and writes, its flops
// and its predicted seconds. Bytes of own kernels are counted from their code, not measured.
//===-----------------------------------------------------------------------------===//
#ifndef PC_CODEGEN_KERNELREPORT_H
#define PC_CODEGEN_KERNELREPORT_H

#include "pc/Codegen/Passes.h"
#include "pc/Cost/Simulate.h"

namespace pc {

/// Describes the launches in a step of one rank. Bytes and flops are sums over all launches of a step; seconds are
/// predictions of the machine model.
struct KernelReport {
  /// One row for each distinct kernel of the program, and for each distinct matrix product and attention of a library.
  /// The rows with the most seconds come first. Members of a row:
  /// * `kernel`, `kind`, and `op`, the first op that it computes; `stage` in a pipeline; `launches`;
  /// * as sums over all launches, `read_bytes` and `written_bytes`: counted from the code of own kernels
  ///   (`countAccesses`), or the operands and results of a library call;
  /// * `distinct_bytes`: each operand and result of the kernel counts at most once per launch;
  /// * `flops` of products;
  /// * for own kernels `blocks`, `threads` of a block, and `access_bytes`, the width of the narrowest accesses that
  ///   move at least a tenth of the kernel's bytes;
  /// * `seconds` on the machine: the longer of computing and of moving the bytes.
  llvm::json::Array kernels;
  /// `bytes` is the size of the result of one attention, and `count` the number of attentions in a step, which is
  /// layers times microbatches. Both are 0 without attention. Published figures give traffic in units of these bytes.
  llvm::json::Object activation;
  /// The seconds of each kind of kernel. The member `launches` has the seconds that launches take by themselves.
  llvm::json::Object parts;
  /// For each op of the program that computes, the seconds of all kernels that it launches.
  OpSeconds seconds;
};

/// Writes the kernels of a planned CUDA program, which is not changed, and reports their use in a step of one rank.
/// Fails with an error if the program is not planned, or at a kernel that cannot be counted.
llvm::FailureOr<KernelReport> reportKernels(mlir::ModuleOp planned, const GenerateKernelsOptions &options,
                                            const MachineModel &machine);

} // namespace pc

#endif
