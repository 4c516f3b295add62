//===- Registration.h - Dialects and passes of the whole compiler ------------------===//
// A tool calls the first function before it parses a program, and the second one before it parses a pipeline of passes.
//===-----------------------------------------------------------------------------===//
#ifndef PC_DRIVER_REGISTRATION_H
#define PC_DRIVER_REGISTRATION_H

#include "mlir/IR/DialectRegistry.h"

namespace pc {
/// Every dialect that a program may hold at any phase.
void registerDialects(mlir::DialectRegistry &registry);
/// Every pass of every room, and the few upstream passes that are useful with them.
void registerPasses();
} // namespace pc

#endif
