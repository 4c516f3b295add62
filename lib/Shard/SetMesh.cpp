//===- SetMesh.cpp - Put a step program on a mesh ----------------------------------===//
// Input: a step program of one device and the mesh as text. Result: the same program with `pc.mesh`, in which every
// value is whole on all axes. Tactics then place one axis after another.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_SETMESH
#include "pc/Shard/Passes.h"

#include "Retype.h"
#include "mlir/IR/Builders.h"
#include "pc/IR/MeshText.h"

using namespace mlir;
using namespace pc;

namespace {
struct SetMesh : pc::impl::SetMeshBase<SetMesh> {
  using SetMeshBase::SetMeshBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (meshOf(module)) {
      module.getBody()->front().emitError() << "pc-set-mesh: the module already has a mesh";
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
    auto error = [&]() -> InFlightDiagnostic { return std::move(module.emitError() << "pc-set-mesh: "); };
    std::string why;
    auto axes = parseMesh(mesh, why);
    if (!axes) {
      error() << why;
      return {};
    }
    SmallVector<StringAttr> names;
    SmallVector<int64_t> sizes;
    for (const MeshAxisText &axis : *axes) {
      if (axis.isSearched || axis.isOpen) {
        error() << "the axis '" << axis.name << "' needs a number as its size, as in dp=2";
        return {};
      }
      names.push_back(StringAttr::get(&getContext(), axis.name));
      sizes.push_back(axis.size);
    }
    if (failed(MeshAttr::verify([&] { return error(); }, names, sizes)))
      return {};
    return MeshAttr::get(&getContext(), names, sizes);
  }
};
} // namespace
