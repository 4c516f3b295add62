//===- Codegen.h - From the kernels phase to an executable ---------------------------===//
// What the driver calls after the planned phase: check the generated tables, embed GPU images, write the object file,
// link. Each function reports its errors at an op of the module that it is given. Kernels and tables are made by the
// pass pc-generate-kernels (Passes.td).
//===-----------------------------------------------------------------------------===//
#ifndef PC_CODEGEN_CODEGEN_H
#define PC_CODEGEN_CODEGEN_H

#include "mlir/IR/BuiltinOps.h"

#include <array>
#include <vector>

namespace pc {

struct WrittenKernels;

/// f32 elements of a vector on this machine: 16 with AVX-512, else 8.
int64_t nativeLanes();

/// Whether this machine rounds vectors of f32 to bf16 by an instruction (AVX512-BF16).
bool nativeRoundsToBf16();

/// The GPU architectures that a CUDA program is compiled for by default.
inline constexpr std::array<llvm::StringRef, 3> defaultArchs = {"sm_80", "sm_90a", "sm_100a"};

/// Checks that step, tables and description in a module of the kernels phase say what the planned program says that it
/// was made of: each call and each row, in order. Fails with an error at an op of `planned`. `written` gets every
/// kernel that the program has written for its ops.
llvm::LogicalResult verifyTables(mlir::ModuleOp planned, mlir::ModuleOp kernels, WrittenKernels *written = nullptr);

/// The tables of a module of the kernels phase as bytes, for a fingerprint: of every stage what pc_program says, its
/// mesh, groups, kernels, products, moves, device kernels, attentions, flows, images, and its description. Numbers have
/// 8 bytes, a string its length before it, a function is its name. "" where there are none.
std::string tableBytes(mlir::ModuleOp kernels);

/// Compiles the gpu.module of a CUDA program for `archs` (sm_90a, ...; none: the default ones) and replaces it by
/// the images; `standIn` adds one for the stand-in of the CUDA driver. Does nothing to a CPU program. Fails with an
/// error at an unknown architecture, or with the message of ptxas.
llvm::LogicalResult embedImages(mlir::ModuleOp module, llvm::ArrayRef<std::string> archs, bool standIn);

/// Translates a module of the kernels phase to an object file for this machine's CPU or, if `portable`, for any with
/// AVX2 (a CUDA program runs on another machine than this). The module is lowered in place. Fails with an error (an
/// unwritable file, a module that is not of that phase).
llvm::LogicalResult emitObject(mlir::ModuleOp module, int64_t lanes, bool portable, llvm::StringRef path);

/// Links `object` with the runtime (libpcrt.a in `libraries`) to the executable `output`, by the system's C++ driver; a
/// CPU program with oneDNN, too. Fails with an error that shows the linker's words; it calls the executable `called`.
llvm::LogicalResult linkExecutable(mlir::ModuleOp module, llvm::StringRef object, llvm::StringRef libraries, bool cuda,
                                   llvm::StringRef output, llvm::StringRef called);

} // namespace pc

#endif
