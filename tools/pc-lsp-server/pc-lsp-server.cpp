//===- pc-lsp-server.cpp - Language server for pc programs --------------------------------===//
#include "pc/Driver/Registration.h"
#include "pc/IR/ToolMain.h"

#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-lsp-server");
  mlir::DialectRegistry registry;
  pc::registerDialects(registry);
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
