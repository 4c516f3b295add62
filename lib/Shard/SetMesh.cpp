//===- SetMesh.cpp - Put a step program on a mesh ----------------------------------===//
#define GEN_PASS_DEF_SETMESH
#include "pc/Shard/Passes.h"

#include "Retype.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace pc;

namespace {
struct SetMesh : pc::impl::SetMeshBase<SetMesh> {
  using SetMeshBase::SetMeshBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (meshOf(module)) {
      module.getBody()->front().emitError() << "pc-set-mesh: the module has a mesh already";
      return signalPassFailure();
    }
    MeshAttr attribute = parse(module);
    if (!attribute)
      return signalPassFailure();
    retype(module, [&](RankedTensorType type) -> Type {
      return placement(type) ? type : withEncoding(type, PlaceAttr::replicated(&getContext(), type.getRank()));
    });
    OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
    MeshOp::create(builder, module.getLoc(), attribute);
  }

  /// Parses "dp=2,tp=2" (an empty text is a mesh of one rank); null after an error at `module`.
  MeshAttr parse(ModuleOp module) {
    SmallVector<StringAttr> names;
    SmallVector<int64_t> sizes;
    SmallVector<StringRef> parts;
    StringRef(mesh).split(parts, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/!StringRef(mesh).trim().empty());
    auto error = [&]() -> InFlightDiagnostic { return std::move(module.emitError() << "pc-set-mesh: "); };
    for (StringRef part : parts) {
      auto [name, size] = part.split('=');
      name = name.trim();
      bool named = !name.empty() && llvm::isAlpha(name[0]) &&
                   llvm::all_of(name, [](char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; });
      if (!named || size.trim().getAsInteger(10, sizes.emplace_back())) {
        error() << "expected axes and sizes like \"dp=2,tp=2\", got \"" << mesh << "\"";
        return {};
      }
      names.push_back(StringAttr::get(&getContext(), name));
    }
    if (failed(MeshAttr::verify([&] { return error(); }, names, sizes)))
      return {};
    return MeshAttr::get(&getContext(), names, sizes);
  }
};
} // namespace
