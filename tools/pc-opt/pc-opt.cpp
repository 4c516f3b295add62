//===- pc-opt.cpp - Runs the passes of every room on IR files ----------------------===//
#include "pc/Driver/Registration.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  pc::registerDialects(registry);
  pc::registerPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "pc optimizer driver\n", registry));
}
