//===- Proof.cpp - Every phase computes what the one-device program computes ---------------===//
#include "pc/Proof/Proof.h"
#include "Walk.h"
#include "pc/Proof/Digest.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

struct Proof::State {
  Shared shared;
  Facts step, before;
  std::string phaseBefore; ///< empty: step
};

Proof::Proof() : state(std::make_unique<State>()) {}
Proof::~Proof() = default;

LogicalResult Proof::begin(ModuleOp step) {
  Walk walk(state->shared, state->step, nullptr, nullptr);
  if (walk.run(step))
    return success();
  return walk.failure.op->emitError() << "in the one-device program: " << walk.failure.why;
}

/// "'pc.add' op"
static std::string nameOfOp(Operation *op) { return "'" + op->getName().getStringRef().str() + "' op"; }

std::string Proof::fingerprint(ModuleOp step) {
  std::string seed = digestOf(step);
  Shared shared{Key::of(seed), {}};
  Facts facts;
  return Walk(shared, facts, nullptr, nullptr).run(step) ? fingerprintOf(facts, seed) : "";
}

LogicalResult Proof::beginAt(ModuleOp module, StringRef phase, StringRef fingerprint) {
  if (!fingerprint.empty())
    state->shared.secret = Key::of(seedOf(fingerprint));
  Walk walk(state->shared, state->step, nullptr, nullptr, /*parallel=*/true);
  if (!walk.run(module))
    return walk.failure.op->emitError() << nameOfOp(walk.failure.op) << " " << walk.failure.why
                                        << "; no program of phase '" << phase << "' does that";
  std::string found = fingerprintOf(state->step, seedOf(fingerprint));
  if (!fingerprint.empty() && found != fingerprint)
    return module.emitError() << "phase '" << phase
                              << "' does not compute what the step program computes that it was made of: "
                              << whatDiffers(found, fingerprint) << " differ from the module's pc.step";
  state->before = state->step;
  state->phaseBefore = phase.str();
  return success();
}

LogicalResult Proof::prove(ModuleOp module, StringRef phase, llvm::function_ref<std::string()> passes) {
  Facts facts;
  if (Walk(state->shared, facts, &state->step, nullptr).run(module)) {
    state->before = std::move(facts);
    state->phaseBefore = phase.str();
    return success();
  }
  // Once more, with a record of who makes what the phase before does not have.
  Facts again;
  bool isFirst = state->phaseBefore.empty();
  Walk walk(state->shared, again, &state->step, isFirst ? &state->step : &state->before);
  (void)walk.run(module);
  const Failure &failure = walk.failure;
  Operation *op = failure.op, *begins = failure.begins ? failure.begins : op;
  InFlightDiagnostic error = begins->emitError() << nameOfOp(begins) << " ";
  if (begins == op)
    error << failure.why;
  else
    error << "makes a value that the program of phase '" << (isFirst ? "step" : state->phaseBefore)
          << "' does not have";
  error << "; phase '" << phase << "' does not compute what the one-device program computes";
  if (begins != op)
    error.attachNote(op->getLoc()) << "it shows at " << nameOfOp(op) << ", which " << failure.why;
  if (passes)
    error.attachNote(op->getLoc()) << "the passes since then: " << passes();
  return error;
}
