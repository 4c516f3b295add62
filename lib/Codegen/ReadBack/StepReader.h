//===- StepReader.h - The calls of a step, read back -------------------------------------------===//
// A step is a line of calls of the runtime, each of which ends it where it fails; a loop over microbatches may be in
// it, and in that a choice between the first one and the others.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_READBACK_STEPREADER_H
#define PC_LIB_CODEGEN_READBACK_STEPREADER_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <map>
#include <vector>

namespace pc {

/// Input: a step function. Result: its calls in order, with numbers and addresses resolved. State: where in the
/// function the reader is, and the arguments of the current call so far. One object reads once.
class StepReader {
public:
  /// Bytes of the arena: `stride` further in each microbatch. -1: null.
  struct At {
    int64_t offset = -1, stride = 0;
    bool operator==(const At &) const = default;
  };
  enum When { Always, First, Later }; ///< in which microbatches

  /// A call of the step. For an argument of another kind an accessor returns a value that no program has.
  struct Call {
    mlir::LLVM::CallOp op;
    llvm::StringRef callee;
    llvm::SmallVector<int64_t> numbers; ///< by operand
    llvm::SmallVector<At> addresses;    ///< by operand
    llvm::SmallVector<At> list;         ///< of buffers, put together before the call
    int64_t laterIndex = none;          ///< the index in all microbatches but the first
    int loopNumber = -1;                ///< the operand that is the microbatch
    When when = Always;
    int64_t times = 1; ///< runs in a step

    int64_t number(unsigned i) const { return i < numbers.size() ? numbers[i] : none; }
    int64_t later() const { return laterIndex == none ? number(1) : laterIndex; }
    At address(unsigned i) const { return i < addresses.size() ? addresses[i] : At{none}; }
    bool isMicrobatch(int i) const { return loopNumber == i; }
  };
  static constexpr int64_t none = INT64_MIN;

  explicit StepReader(mlir::LLVM::LLVMFuncOp function) : function(function) {}
  /// False where it is anything else, `wrong` is the op.
  bool read(std::vector<Call> &calls, mlir::Operation *&wrong);

private:
  /// A step is followed block by block; each of these is false, or null, at what the generator does not write.
  bool readBlock(mlir::Block &block);
  bool readCall(mlir::LLVM::CallOp call);
  mlir::Block *follow(mlir::Operation *terminator);
  mlir::Block *choose(mlir::LLVM::CondBrOp branch);
  bool isFirst(mlir::Value condition);
  At addressOf(mlir::Value value);

  mlir::LLVM::LLVMFuncOp function;
  std::vector<Call> *calls = nullptr;
  mlir::Value buffers;                  ///< the array that calls get their list in
  std::map<int64_t, At> stored;         ///< by element, since the last call
  mlir::Operation *unchecked = nullptr; ///< the call of this block
  mlir::Value microbatch;
  mlir::Block *exit = nullptr;
  size_t loopBegin = 0; ///< the first call in the loop
  When when = Always;
  mlir::Operation *wrong = nullptr;
};

} // namespace pc

#endif
