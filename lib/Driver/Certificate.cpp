//===- Certificate.cpp - The record of the programs that an executable was made from --------===//
// A certificate is a list of entries, each of which hashes the one before. A digest of the last program connects it
// with the executable. Changing a program or an entry changes a hash.
//===----------------------------------------------------------------------------------------===//
#include "Certificate.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "pc/Codegen/Codegen.h"
#include "pc/Driver/Origin.h"
#include "pc/IR/Stages.h"
#include "pc/Proof/Digest.h"
#include "pcrt/version.h"
#include "llvm/Config/llvm-config.h"

using namespace mlir;
using namespace pc;

/// Each entry hashes the one before it, so that no entry can be left out.
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

/// The certificate is JSON and ends with a hash of itself.
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

/// The digest of the program's text and of `carried`. The text contains all attributes of the module except the two
/// digests, and no locations.
static std::string digestWith(ModuleOp kernels, StringRef carried) {
  DictionaryAttr attributes = kernels->getDiscardableAttrDictionary();
  kernels->removeAttr(certificateAttribute);
  kernels->removeAttr(digestAttribute);
  std::string text;
  llvm::raw_string_ostream os(text);
  kernels->print(os, OpPrintingFlags().enableDebugInfo(false).printGenericOpForm(false));
  kernels->setDiscardableAttrs(attributes);
  os << carried;
  return digestOf(text);
}

/// If the tables were not compared, a later compile must not rely on the program.
void Certificate::carry(ModuleOp kernels) const {
  if (!readBack)
    return;
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(
      llvm::json::Object{{"phases", llvm::json::Array(phases)}, {"collectives", llvm::json::Array(collectives)}});
  Builder b(kernels.getContext());
  kernels->setAttr(certificateAttribute, b.getStrArrayAttr({digestWith(kernels, text), text}));
}

/// The attribute has two strings: the entries, and before them a digest of the program and the entries.
Certificate::Carried Certificate::take(ModuleOp kernels) {
  Attribute carried = kernels->getAttr(certificateAttribute);
  if (!carried)
    return Carried::Nothing;
  auto parts = dyn_cast<ArrayAttr>(carried);
  if (!parts || parts.size() != 2 || !llvm::all_of(parts, llvm::IsaPred<StringAttr>))
    return Carried::Edited;
  StringRef text = cast<StringAttr>(parts[1]).getValue();
  if (cast<StringAttr>(parts[0]).getValue() != digestWith(kernels, text))
    return Carried::Edited;
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(text);
  if (!value) {
    consumeError(value.takeError());
    return Carried::Edited;
  }
  llvm::json::Object *object = value->getAsObject();
  llvm::json::Array *allPhases = object ? object->getArray("phases") : nullptr;
  llvm::json::Array *allCollectives = object ? object->getArray("collectives") : nullptr;
  if (!allPhases || !allCollectives || allPhases->empty())
    return Carried::Edited;
  phases = std::move(*allPhases);
  collectives = std::move(*allCollectives);
  readBack = true;
  return Carried::Intact;
}
