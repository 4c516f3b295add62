//===- HostProgram.h - The step function and its calls of the runtime -----------------===//
// Writes the step function. This file deals only with calls and addresses; GenerateKernels.cpp chooses the calls for
// ops.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_HOST_HOSTPROGRAM_H
#define PC_LIB_CODEGEN_HOST_HOSTPROGRAM_H

#include "Tables.h"
#include "pc/IR/PC.h"
#include "pcrt/pcrt.h"

namespace pc {

/// Writes a step function, `llvm.func @pc_step(ctx, arena) -> i32`, call by call. The function returns at the first
/// call whose status is not zero, with that status.
class HostProgram {
public:
  /// Begins the function `name` at the end of `module`; finish() completes it.
  HostProgram(mlir::ModuleOp module, llvm::StringRef name);

  /// An address is a byte offset in the arena, plus `stride` times the number of the microbatch.
  struct Address {
    int64_t offset = 0, stride = 0;
  };

  /// Each of these functions writes one call of the runtime's function of the same name, with the number of a table
  /// entry.
  void launch(int64_t kernel, llvm::ArrayRef<Address> arguments);
  /// `later` is the table entry for all microbatches except the first. If it is -1, they use the same entry as the
  /// first.
  void gemm(int64_t index, Address a, Address b, Address c, std::optional<Address> bias, std::optional<Address> aux,
            int64_t later = -1);
  void move(int64_t index, Address in, Address out);
  void attention(int64_t index, llvm::ArrayRef<Address> arguments);
  /// Starts the moves `first`, `first` + 1, ... of the table, one per address.
  void start(int64_t first, llvm::ArrayRef<Address> ins, llvm::ArrayRef<Address> outs, int64_t ticket);
  void wait(int64_t ticket);
  /// If the step has no loop, `of` is the number of the microbatch.
  void observe(int64_t output, Address value, int64_t of = 0);
  void send(int64_t flow, Address value);
  void receive(int64_t flow, Address value);
  void task(int64_t kind, int64_t chunk, int64_t microbatch);
  /// Stores the rank's index in the group, times `block`, as i32.
  void blockOffset(int64_t group, int64_t block, Address to);
  /// Begins a loop: calls that are written from here to endLoop run once per microbatch.
  void beginLoop(int64_t microbatches);
  void endLoop();
  /// Inside the loop: runs `first` in microbatch 0, and `later` in the others.
  void byMicrobatch(llvm::function_ref<void()> first, llvm::function_ref<void()> later);
  void finish();

  /// How often a step calls each entry of a table, by index.
  struct Calls {
    std::vector<int64_t> kernels, products, attentions;
  };
  const Calls &calls() const { return numCalls; }

private:
  /// Adds `times` calls of a table entry.
  static void count(std::vector<int64_t> &calls, int64_t index, int64_t times) {
    calls.resize(std::max<size_t>(calls.size(), index + 1));
    calls[index] += times;
  }
  mlir::Value integer(int64_t value, unsigned bits = 64);
  mlir::Value address(Address at);
  /// Returns the argument for a parameter of type ParameterT of a runtime function.
  template <typename ParameterT, typename T> mlir::Value argument(const T &value) {
    if constexpr (std::is_same_v<T, mlir::Value>)
      return value;
    else if constexpr (std::is_same_v<T, Address>)
      return address(value);
    else if constexpr (std::is_convertible_v<T, llvm::ArrayRef<Address>>)
      return pass(value);
    else
      return integer(value, 8 * sizeof(ParameterT));
  }
  /// Writes a call of the runtime's function `name`, which pcrt.h declares as `FunctionT`, and a check of its status.
  /// The first argument is the context.
  template <typename FunctionT, typename... Ts> void call(llvm::StringRef name, const Ts &...values) {
    callWithContext(static_cast<FunctionT *>(nullptr), name, values...);
  }
  template <typename... ParameterTs, typename... Ts>
  void callWithContext(pcrt_status (*)(pcrt_context *, ParameterTs...), llvm::StringRef name, const Ts &...values) {
    static_assert(
        ((std::is_same_v<Ts, mlir::Value> || std::is_pointer_v<ParameterTs> != std::is_arithmetic_v<Ts>) && ...));
    check(callFunction(name, {context, argument<ParameterTs>(values)...}));
  }
  mlir::Value callFunction(llvm::StringRef name, mlir::ValueRange arguments);
  /// Returns from the function if `status` is not zero.
  void check(mlir::Value status);
  /// Stores addresses in the array of arguments, from element `at` on. Returns the address of that element.
  mlir::Value pass(llvm::ArrayRef<Address> list, int32_t at = 0);
  mlir::Block *newBlock() { return &function.getBody().emplaceBlock(); }

  mlir::OpBuilder b;
  mlir::Location loc;
  mlir::ModuleOp module;
  mlir::LLVM::LLVMFuncOp function;
  mlir::Value context, arena, arguments, microbatch;
  mlir::Block *exit = nullptr, *loopHead = nullptr;
  int64_t loopCount = 1;
  int64_t times = 1; ///< how often the code that is currently written runs in a step
  Calls numCalls;
};

/// The most buffers a kernel may have.
constexpr int64_t maxKernelArguments = 256;

} // namespace pc

#endif
