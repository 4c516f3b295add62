//===- Certificate.cpp - What an executable says of the programs that it was made of --------===//
#include "Certificate.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "pc/Codegen/Codegen.h"
#include "pc/IR/Stages.h"
#include "pc/Proof/Digest.h"
#include "pcrt/version.h"
#include "llvm/Config/llvm-config.h"

using namespace mlir;
using namespace pc;

void Certificate::add(Phase phase, ModuleOp program, StringRef how) {
  std::string digest = digestOf(program);
  chain = digestOf((chain + " " + nameOf(phase) + " " + digest + " " + how).str());
  phases.push_back(llvm::json::Object{{"phase", nameOf(phase)}, {"program", digest}, {"how", how}, {"chain", chain}});
  if (phase != Phase::Planned)
    return;
  for (ModuleOp stage : programsOf(program)) {
    std::vector<std::string> order = collectivesOf(stage);
    collectives.push_back(llvm::json::Object{{"stage", stageOf(stage)},
                                             {"count", static_cast<int64_t>(order.size())},
                                             {"order", digestOf(llvm::join(order, "\n"))}});
  }
}

void Certificate::finish(ModuleOp kernels, StringRef plan, StringRef step) {
  llvm::json::Object text{{"format", 2},
                          {"compiler", pcrt_version + std::string(", LLVM " LLVM_VERSION_STRING)},
                          {"plan", plan},
                          {"step", step},
                          {"phases", std::move(phases)},
                          {"collectives", std::move(collectives)},
                          {"read_back", readBack},
                          {"tables", digestOf(tableBytes(kernels))}};
  std::string all;
  llvm::raw_string_ostream(all) << llvm::json::Value(llvm::json::Object(text));
  text["sum"] = digestOf(all);
  all.clear();
  llvm::raw_string_ostream(all) << llvm::json::Value(std::move(text)) << '\0';
  OpBuilder b = OpBuilder::atBlockEnd(kernels.getBody());
  LLVM::GlobalOp::create(b, kernels.getLoc(), LLVM::LLVMArrayType::get(b.getI8Type(), all.size()), /*isConstant=*/true,
                         LLVM::Linkage::External, "pc_certificate", b.getStringAttr(all));
}
