//===- SearchProblem.cpp - The input of a search -----------------------------------------------===//
// Decides from the number of layers how plans are priced, and from the flags how many programs may be compiled.
//===-------------------------------------------------------------------------------------------===//
#include "SearchProblem.h"
#include "../Report/WhatLimits.h"

#include "pc/Shard/KnownDims.h"

using namespace mlir;
using namespace pc;

/// If a model has more layers than this, most plans are priced from programs of few layers instead of the whole
/// program.
static constexpr int64_t manyLayers = 3;
/// The default limits on the number of programs that are compiled: whole programs, and programs of few layers.
static constexpr int64_t mostPlans = 1000, mostOfFewLayers = 10000;

SearchProblem::SearchProblem(ModuleOp model, const CompileOptions &options, const MachineModel &machine,
                             Objective objective)
    : model(model), options(options), search(options.search), machine(machine), objective(objective),
      batch(batchOf(model)), hasSequences(pc::hasSequences(model)),
      space(search, batch, hasKnownDims(model), hasExperts(model), mixesSequences(model)) {}

static int64_t countOps(ModuleOp model) {
  int64_t ops = 0;
  model.walk([&](Operation *) { ++ops; });
  return ops;
}

/// Reads the flags before the model, so that wrong flags are reported first.
pcrt_status SearchProblem::read() {
  if (std::optional<Refusal> refused = space.read())
    return fail(refused->status, refused->why);
  if (pcrt_status status = readWork(model, options, work))
    return status;
  few = FewLayers::of(model);
  space.dims = dimsOf(model);
  pricing = few && few->layers() > manyLayers ? Pricing::FewLayers : Pricing::Whole;
  // If each plan is compiled with all its layers, the embedding and the head may be separate chunks.
  mostChunks = few ? few->layersOfChains() + (composes() ? 0 : 2) : countOps(model);
  return PCRT_OK;
}

int64_t SearchProblem::mostCompositions() const {
  return search.compositions ? search.compositions : composes() ? mostOfFewLayers : mostPlans;
}

std::string SearchProblem::given() const {
  std::string text = search.free.empty() ? "" : " --auto=" + search.free;
  for (const std::string &name : search.pins.names())
    text += " " + textOf(search.pins, name);
  return text.empty() ? "" : ", with" + text;
}
