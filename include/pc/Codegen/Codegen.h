//===- Codegen.h - From the kernels phase to an executable ---------------------------===//
// The functions that the driver calls after the planned phase: they check the generated tables, embed GPU images, write
// the object file, and link. Each function reports its errors at an op of the given module. The pass
// pc-generate-kernels (Passes.td) writes kernels and tables.
//===-----------------------------------------------------------------------------===//
#ifndef PC_CODEGEN_CODEGEN_H
#define PC_CODEGEN_CODEGEN_H

#include "mlir/IR/BuiltinOps.h"

#include <array>
#include <vector>

namespace pc {

struct WrittenKernels;

/// The number of f32 elements in a vector on this machine: 16 with AVX-512, otherwise 8.
int64_t nativeLanes();

/// Whether this machine rounds vectors of f32 to bf16 by an instruction (AVX512-BF16).
bool nativeRoundsToBf16();

/// The GPU architectures that a CUDA program is compiled for by default.
inline constexpr std::array<llvm::StringRef, 3> defaultArchs = {"sm_80", "sm_90a", "sm_100a"};

/// Whether a program for these architectures runs only where cuBLASLt multiplies floats of 8 bits in blocks of 128
/// elements: on compute capability 9.0 (cuBLAS documentation, "Scaling Mode Support Overview"). An empty list means the
/// default architectures.
bool multipliesFloat8(llvm::ArrayRef<std::string> archs);

/// Checks that the step, tables and description in `kernels`, a module of the kernels phase, agree with the program
/// `planned`: each call and each row, in order. Fails with an error at an op of `planned`. Adds to `written` every
/// kernel that was written for the program's ops.
llvm::LogicalResult verifyTables(mlir::ModuleOp planned, mlir::ModuleOp kernels, WrittenKernels *written = nullptr);

/// Returns the tables of a module of the kernels phase as bytes, for a fingerprint. For each stage, the bytes contain
/// the fields of pc_program, its tables (mesh, groups, kernels, products, moves, device kernels, attentions, flows,
/// images) and its description. A number takes 8 bytes, a string follows its length, and a function is given by its
/// name. Returns "" if there are no tables.
std::string tableBytes(mlir::ModuleOp kernels);

/// Compiles the gpu.module of a CUDA program for the architectures `archs`, such as sm_90a, or for the default ones if
/// `archs` is empty. Replaces the gpu.module by the images: PTX, and a cubin for each architecture or, if `standIn`, an
/// image for the stand-in of the CUDA driver. Does nothing to a CPU program. Fails with an error if an architecture is
/// unknown, or with the message of ptxas.
llvm::LogicalResult embedImages(mlir::ModuleOp module, llvm::ArrayRef<std::string> archs, bool standIn);

/// Translates a module of the kernels phase to an object file, and lowers the module in place. The file is for this
/// machine's CPU or, if `portable`, for any CPU with AVX2, since a CUDA program runs on another machine. Fails with an
/// error if the file cannot be written or the module is of another phase.
llvm::LogicalResult emitObject(mlir::ModuleOp module, int64_t lanes, bool portable, llvm::StringRef path);

/// Links `object` with libpcrt.a, which is in `libraries`, into the executable `output`. A CPU program is also linked
/// with oneDNN. Calls the system's C++ driver. Fails with an error that contains the linker's message and refers to the
/// executable as `called`.
llvm::LogicalResult linkExecutable(mlir::ModuleOp module, llvm::StringRef object, llvm::StringRef libraries, bool cuda,
                                   llvm::StringRef output, llvm::StringRef called);

} // namespace pc

#endif
