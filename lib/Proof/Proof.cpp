//===- Proof.cpp - Every phase computes what the one-device program computes ---------------===//
// The driver of the proof: `begin` walks the step program and keeps its facts, `prove` walks the program of a phase and
// compares. A second walk with a trace runs only after a failure, to find the op to blame; a search for a repair then
// names the move that would have been right, if there is one.
//===-----------------------------------------------------------------------------===//
#include "pc/Proof/Proof.h"
#include "Order.h"
#include "Walk.h"
#include "pc/Proof/Digest.h"

#include "mlir/IR/OwningOpRef.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// Facts of the first program and of the previous phase, and state that all walks share.
struct Proof::State {
  Shared shared;
  Facts step, before;
  OwningOpRef<ModuleOp> program; ///< the program with which the others are compared
  bool isParallel = false;       ///< `program` is not the step program
  std::string phaseBefore;       ///< empty if it is the step
};

Proof::Proof() : state(std::make_unique<State>()) {}
Proof::~Proof() = default;

/// The step program is kept as a copy, because a failure later needs a second walk through it.
LogicalResult Proof::begin(ModuleOp step) {
  if (failed(checkOrder(step)))
    return failure();
  Walk walk(state->shared, state->step, nullptr);
  if (!walk.run(step))
    return walk.failure.op->emitError() << "the one-device program is wrong: the op " << walk.failure.why;
  state->program = step.clone();
  return success();
}

/// "'pc.add' op"
static std::string nameOfOp(Operation *op) { return "'" + op->getName().getStringRef().str() + "' op"; }

std::string Proof::fingerprint(ModuleOp step) {
  std::string seed = digestOf(step);
  Shared shared(Key::of(seed));
  Facts facts;
  return Walk(shared, facts, nullptr).run(step) ? fingerprintOf(facts, seed) : "";
}

/// With a fingerprint, the random numbers are drawn from its seed, so that equal programs have equal fingerprints.
LogicalResult Proof::beginAt(ModuleOp module, StringRef phase, StringRef fingerprint) {
  if (!fingerprint.empty())
    state->shared.values = Values(Key::of(seedOf(fingerprint)));
  Walk walk(state->shared, state->step, nullptr, nullptr, state->isParallel = true);
  if (!walk.run(module))
    return walk.failure.op->emitError() << nameOfOp(walk.failure.op) << " " << walk.failure.why
                                        << ", which is not allowed in a program of phase '" << phase << "'";
  std::string found = fingerprintOf(state->step, seedOf(fingerprint));
  if (!fingerprint.empty() && found != fingerprint)
    return module.emitError() << "phase '" << phase
                              << "' does not compute the same as the step program from which it was made: "
                              << whatDiffers(found, fingerprint) << " differ from the module's attribute pc.step";
  state->program = module.clone();
  state->before = state->step;
  state->phaseBefore = phase.str();
  return success();
}

bool Proof::isProved(ModuleOp module) const {
  Facts facts;
  return Walk(state->shared, facts, &state->step).run(module);
}

ModuleOp Proof::firstProgram() const { return *state->program; }

/// The quick walk records nothing. Only after a failure are both programs walked again with traces, to find the op to
/// blame and, in windows, a move that would repair the program.
LogicalResult Proof::prove(ModuleOp module, StringRef phase, llvm::function_ref<std::string()> passThatBroke) {
  Facts facts;
  Walk quick(state->shared, facts, &state->step);
  if (quick.run(module)) {
    if (!state->phaseBefore.empty() && facts.rounded != state->before.rounded)
      return module.emitError() << "phase '" << phase << "' rounds the addends of " << facts.rounded.size()
                                << " sums to codes, and phase '" << state->phaseBefore << "' those of "
                                << state->before.rounded.size()
                                << "; a pass dropped, added or changed 'wire' of a move, so the plan would round other "
                                   "sums than it says";
    state->before = std::move(facts);
    state->phaseBefore = phase.str();
    return success();
  }
  // Walks both programs again, with a record of all values.
  Facts again, stepAgain;
  Trace trace, stepTrace;
  Walk walk(state->shared, again, &state->step, &trace);
  if (walk.run(module)) // unlike the first walk, this one runs all microbatches and calls
    walk.failure = quick.failure;
  (void)Walk(state->shared, stepAgain, nullptr, &stepTrace, state->isParallel).run(*state->program);
  // Values of the previous phase count as right, so the error is at a value that is new in this phase.
  bool isFirst = state->phaseBefore.empty();
  llvm::DenseSet<uint64_t> before(llvm::from_range, state->before.states);
  Blame blame = proof::blame(walk.failure, trace, stepTrace, isFirst ? nullptr : &before);
  Operation *op = walk.failure.op;
  if (walk.failure.fault == FaultKind::Place)
    if (auto found = repair(module, walk.failure, trace, [&] { return isProved(module); })) {
      blame.op = found->move;
      blame.fault = FaultKind::Place;
      blame.expected = "expected " + differenceOf(found->move, found->like);
      blame.other = nullptr;
    }
  InFlightDiagnostic error = blame.op->emitError() << nameOfOp(blame.op) << " ";
  if (blame.op == op)
    error << walk.failure.why;
  else if (blame.fault == FaultKind::Memory)
    error << "shares bytes with other values";
  else
    error << "computes a value that the program of phase '" << (isFirst ? "step" : state->phaseBefore)
          << "' does not compute";
  if (!blame.expected.empty())
    error << "; " << blame.expected;
  error << "; phase '" << phase << "' does not compute the same as the one-device program (" << nameOf(blame.fault)
        << ")";
  if (blame.op != op)
    error.attachNote(op->getLoc()) << "the error was detected at " << nameOfOp(op) << ", which " << walk.failure.why;
  if (blame.other && blame.other != blame.op)
    error.attachNote(blame.other->getLoc())
        << "alternatively, " << nameOfOp(blame.other) << " is wrong, because the two do not match";
  std::string pass = passThatBroke ? passThatBroke() : "";
  if (!pass.empty())
    error.attachNote(op->getLoc()) << "pass '" << pass
                                   << "' introduced the error; the program was still correct before this pass";
  return error;
}
