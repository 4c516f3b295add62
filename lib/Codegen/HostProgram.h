//===- HostProgram.h - The step function and its calls of the runtime -----------------===//
#ifndef PC_LIB_CODEGEN_HOSTPROGRAM_H
#define PC_LIB_CODEGEN_HOSTPROGRAM_H

#include "Tables.h"
#include "pc/IR/PC.h"
#include "pcrt/pcrt.h"

namespace pc {

/// Writes a step function, `llvm.func @pc_step(ctx, arena) -> i32`, call by call. Every call's status is checked; the
/// first that is not zero is returned.
class HostProgram {
public:
  HostProgram(mlir::ModuleOp module, llvm::StringRef name);

  /// An address: byte offset in the arena, plus `stride` times the number of the microbatch.
  struct Address {
    int64_t offset = 0, stride = 0;
  };

  void launch(int64_t kernel, llvm::ArrayRef<Address> arguments);
  /// `later` (-1: the same) is the product of all microbatches but the first.
  void gemm(int64_t index, Address a, Address b, Address c, std::optional<Address> bias, std::optional<Address> aux,
            int64_t later = -1);
  void move(int64_t index, Address in, Address out);
  void attention(int64_t index, llvm::ArrayRef<Address> arguments);
  /// Starts moves `first`, `first` + 1, ..., one per address.
  void start(int64_t first, llvm::ArrayRef<Address> ins, llvm::ArrayRef<Address> outs, int64_t ticket);
  void wait(int64_t ticket);
  /// `of`: the microbatch, where the step has no loop.
  void observe(int64_t output, Address value, int64_t of = 0);
  void send(int64_t flow, Address value);
  void receive(int64_t flow, Address value);
  void task(int64_t kind, int64_t chunk, int64_t microbatch);
  /// Stores coordinate-in-group times `block` as i32.
  void blockOffset(int64_t group, int64_t block, Address to);
  /// What is written until endLoop runs once per microbatch.
  void beginLoop(int64_t microbatches);
  void endLoop();
  /// Inside the loop: `first` for microbatch 0, `later` for the others.
  void byMicrobatch(llvm::function_ref<void()> first, llvm::function_ref<void()> later);
  void finish();

private:
  mlir::Value integer(int64_t value, unsigned bits = 64);
  mlir::Value address(Address at);
  mlir::Value call(llvm::StringRef name, mlir::Type result, mlir::ValueRange arguments);
  void check(mlir::Value status);
  /// Puts addresses into the array of arguments, from element `at` on; returns where.
  mlir::Value pass(llvm::ArrayRef<Address> list, int32_t at = 0);
  mlir::Block *newBlock() { return &function.getBody().emplaceBlock(); }

  mlir::OpBuilder b;
  mlir::Location loc;
  mlir::ModuleOp module;
  mlir::LLVM::LLVMFuncOp function;
  mlir::Value context, arena, arguments, microbatch;
  mlir::Block *exit = nullptr, *loopHead = nullptr;
  int64_t loopCount = 1;
};

/// The most buffers a kernel may have.
constexpr int64_t maxKernelArguments = 256;

} // namespace pc

#endif
