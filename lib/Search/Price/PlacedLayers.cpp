//===- PlacedLayers.cpp - Few layers, placed once for all batches ----------------------------===//
// Placing a program takes most of the time of a small compile. So a placed program is kept and resized, if placements
// for fewer and more sequences agree.
//===-----------------------------------------------------------------------------------------===//
#include "PlacedLayers.h"
#include "PriceProgram.h"

#include "pc/IR/DimClasses.h"
#include <numeric>
#include <set>

using namespace mlir;
using namespace pc;

/// Calls `use` with every value of a module, in the order of a walk.
static void forValues(ModuleOp module, llvm::function_ref<void(Value)> use) {
  module.walk([&](Operation *op) {
    llvm::for_each(op->getResults(), use);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        llvm::for_each(block.getArguments(), use);
  });
}

/// Compiles to the placed phase once for this number of sequences. Then records a hash of the ops and placements
/// (`form`) and, for each value, the dim that depends on the number of sequences, or -1.
void PlacedLayers::place(BySequences &known, const CompileOptions &options, int64_t layers, int64_t sequences) {
  auto [it, isNew] = known.try_emplace(sequences);
  if (!isNew)
    return;
  Placed &placed = it->second;
  placed.module = few.take(layers, sequences * options.plan.microbatches);
  if (!placeProgram(*placed.module, options)) {
    placed.module = nullptr;
    return;
  }
  DimClasses classes(*placed.module);
  std::set<unsigned> batch;
  placed.module->walk([&](InputOp input) {
    for (auto [d, name] : llvm::enumerate(input.getDims().getAsValueRange<StringAttr>()))
      if (name == "batch")
        batch.insert(classes.classOf(input.getValue(), static_cast<int64_t>(d)));
  });
  MeshAttr mesh = meshOf(*placed.module);
  forValues(*placed.module, [&](Value value) {
    PlaceAttr place = placement(value);
    Operation *op = value.getDefiningOp();
    placed.form =
        llvm::hash_combine(placed.form, place.getAsOpaquePointer(), op ? op->getName().getAsOpaquePointer() : nullptr);
    int &found = placed.batchDims.emplace_back(-1);
    auto type = dyn_cast<RankedTensorType>(value.getType());
    for (int64_t d = 0; type && d < type.getRank(); ++d)
      if (batch.count(classes.classOf(value, d))) {
        found = static_cast<int>(d);
        if (place)
          placed.parts = std::lcm(placed.parts, mesh.size(place.axes(d)));
      }
  });
}

/// If the placements for fewer and for more sequences have the same form, returns the placed program with resized dims.
/// Otherwise places a program for exactly these sequences.
OwningOpRef<ModuleOp> PlacedLayers::take(const CompileOptions &options, int64_t layers, int64_t sequences) {
  const Plan &plan = options.plan;
  if (sequences % plan.microbatches)
    return nullptr;
  BySequences &ofPlan = known[{plan.key(), layers}];
  int64_t atOnce = sequences / plan.microbatches, fewest = 1; // fewest: every product of axes divides it
  for (const auto &[axis, size] : plan.mesh)
    fewest *= size;
  if (!ofPlan.empty() && fewest < atOnce)
    place(ofPlan, options, layers, fewest);
  // If the placements for fewer and for more sequences have the same form, the one for this number also has it.
  auto more = ofPlan.lower_bound(atOnce);
  if (more == ofPlan.begin() || more == ofPlan.end() || std::prev(more)->second.form != more->second.form)
    place(ofPlan, options, layers, atOnce);
  more = ofPlan.lower_bound(atOnce);
  Placed &placed = more->second;
  if (!placed.module || atOnce % placed.parts)
    return nullptr;
  OwningOpRef<ModuleOp> module = placed.module->clone();
  // Values are visited in the order in which `place` has recorded them.
  size_t number = 0;
  forValues(*module, [&](Value value) {
    int d = placed.batchDims[number++];
    if (d < 0)
      return;
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[d] = atOnce;
    value.setType(RankedTensorType::get(shape, type.getElementType(), type.getEncoding()));
  });
  module->walk([&](ProgramOp program) { program.setBatch(sequences); });
  return module;
}
