//===- InProcess.h - A local program compiled and run in this process -----===//
// A runtime of a few lines (one thread, plain matrix products in double) for programs of one rank, compared with the
// reference interpreter on the same feeds.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_CODEGEN_EXECUTE_INPROCESS_H
#define PC_TEST_CODEGEN_EXECUTE_INPROCESS_H

#include "mlir/IR/BuiltinOps.h"
#include <string>

struct Comparison {
  double difference = 0; ///< the largest of any output or update, relative (pc::largestDifference)
  std::string where;     ///< its name
  std::string error;     ///< not empty: something failed
};

/// Takes `local` (phase local) to an object file, with or without pc-fuse, runs it once with every kernel in one range
/// and once in ranges of one item from last to first, checks that both give the same bits, and compares with the
/// interpreter.
Comparison compareWithInterpreter(mlir::ModuleOp local, bool fuse);

#endif
