//===- InProcess.h - Compiles a local program and runs it in this process -===//
// A runtime of a few lines (one thread, plain matrix products in double) for programs of one rank, whose results are
// compared with those of the reference interpreter for the same inputs.
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

/// Compiles `local` (phase local) to an object file, with or without pc-fuse. Runs it once with every kernel in one
/// range and once in ranges of one item from last to first, checks that both give the same bits, and compares the
/// results with the interpreter's.
Comparison compareWithInterpreter(mlir::ModuleOp local, bool fuse);

#endif
