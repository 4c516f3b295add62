//===- StepReader.h - Reads the calls of a step back -------------------------------------------===//
// A step is a sequence of runtime calls, and ends if one of them fails. It may contain a loop over microbatches. The
// loop may contain a choice between the first microbatch and the others.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_CODEGEN_READBACK_STEPREADER_H
#define PC_LIB_CODEGEN_READBACK_STEPREADER_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <map>
#include <vector>

namespace pc {

/// Input: a step function. Result: the calls of the function in order, with numbers and addresses resolved. State: the
/// position in the function, and the arguments of the current call so far. One object reads once.
class StepReader {
public:
  /// An offset in the arena, which grows by `stride` in each microbatch. -1: null.
  struct At {
    int64_t offset = -1, stride = 0;
    bool operator==(const At &) const = default;
  };
  enum When { Always, First, Later }; ///< the microbatches in which a call runs

  /// A call of the step. If an argument is of another kind than an accessor expects, the accessor returns a value that
  /// no program has.
  struct Call {
    mlir::LLVM::CallOp op;
    llvm::StringRef callee;
    llvm::SmallVector<int64_t> numbers; ///< by operand
    llvm::SmallVector<At> addresses;    ///< by operand
    llvm::SmallVector<At> list;         ///< the list of buffers, stored before the call
    int64_t laterIndex = none;          ///< the index in all microbatches except the first
    int loopNumber = -1;                ///< the operand that is the microbatch
    When when = Always;
    int64_t times = 1; ///< how often it runs in a step

    int64_t number(unsigned i) const { return i < numbers.size() ? numbers[i] : none; }
    int64_t later() const { return laterIndex == none ? number(1) : laterIndex; }
    At address(unsigned i) const { return i < addresses.size() ? addresses[i] : At{none}; }
    bool isMicrobatch(int i) const { return loopNumber == i; }
  };
  static constexpr int64_t none = INT64_MIN;

  explicit StepReader(mlir::LLVM::LLVMFuncOp function) : function(function) {}
  /// Reads the calls. If the function has an op of any other kind, sets `wrong` to that op and returns false.
  bool read(std::vector<Call> &calls, mlir::Operation *&wrong);

private:
  /// These functions follow a step block by block. They return false, or null, at code that the generator does not
  /// write.
  bool readBlock(mlir::Block &block);
  bool readCall(mlir::LLVM::CallOp call);
  mlir::Block *follow(mlir::Operation *terminator);
  mlir::Block *choose(mlir::LLVM::CondBrOp branch);
  bool isFirst(mlir::Value condition);
  At addressOf(mlir::Value value);

  mlir::LLVM::LLVMFuncOp function;
  std::vector<Call> *calls = nullptr;
  mlir::Value buffers;                  ///< the array with the list of a call
  std::map<int64_t, At> stored;         ///< for each element, the value stored since the last call
  mlir::Operation *unchecked = nullptr; ///< the call of this block whose status is not checked yet
  mlir::Value microbatch;
  mlir::Block *exit = nullptr;
  size_t loopBegin = 0; ///< the first call in the loop
  When when = Always;
  mlir::Operation *wrong = nullptr;
};

} // namespace pc

#endif
