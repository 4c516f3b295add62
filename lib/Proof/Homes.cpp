//===- Homes.cpp - Values in the bytes of an arena --------------------------------------------===//
// In planned programs, the bytes of an operand's home must hold the operand when an op reads it; otherwise the op is
// refused. Therefore the proof does not need to know the lifetimes of values.
//===-----------------------------------------------------------------------------===//
#include "Walk.h"

#include "pc/IR/Liveness.h"
#include "pc/IR/Sharing.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// The bytes of the arena that `value` occupies; std::nullopt if there are no homes. In a called task, homes are local
/// to the function, and `places` maps them to the caller's arena.
std::optional<Range> Walk::rangeOf(Stage &stage, Operation *op, Value value) {
  if (stage.arena < 0 || stage.inKernel)
    return std::nullopt;
  int64_t home = homeOrNone(value);
  if (home >= 0 && stage.places) {
    auto place = std::prev(stage.places->upper_bound(home));
    home = place->second < 0 ? -1 : place->second + home - place->first;
  }
  if (home < 0) {
    clash(op, "has a value without an arena offset", nullptr, {});
    return Range();
  }
  home += elementOffsetOf(value);
  return Range{home, home + byteSize(value.getType())};
}

/// A range also holds an element of a stack if the bytes of the whole stack hold the stack.
bool Walk::holds(Stage &stage, const Range &range, const State &state) const {
  if (stage.bytes.hold(range, state))
    return true;
  auto part = stacks.find({state.value, state.microbatch});
  if (part == stacks.end())
    return false;
  auto [stack, number, count] = part->second;
  int64_t bytes = range.end - range.begin, begin = range.begin - number * bytes;
  return stage.bytes.hold({begin, begin + count * bytes}, stack);
}

/// Refuses the program. If there is a trace, instead records the clash and continues, so that the cause can be found
/// among all clashes.
bool Walk::clash(Operation *op, const Twine &why, Value value, std::pair<Operation *, Operation *> writer,
                 Operation *other) {
  if (!trace)
    return refuse(op, why, FaultKind::Memory, other);
  if (wrongBytes.why.empty()) {
    wrongBytes.op = op;
    wrongBytes.why = why.str();
    wrongBytes.fault = FaultKind::Memory;
    wrongBytes.other = other;
  }
  int made = value ? stateOf(value).made : -1;
  if (made >= 0)
    trace->clashes.push_back({op, trace->made[made].op, writer.first, trace->made[made].call, writer.second});
  return true;
}

/// If the bytes hold another value, the error names the op that wrote them last.
bool Walk::isIn(Stage &stage, Operation *op, Value value, const State &state, std::optional<Range> range) {
  if (!range || holds(stage, *range, state))
    return true;
  return clash(op,
               "reads bytes " + Twine(range->begin) + " to " + Twine(range->end) + ", which do not contain its operand",
               value, stage.bytes.writerOf(*range));
}

/// Writes `state` into the bytes of the arena. Refuses bytes outside of it.
bool Walk::put(Stage &stage, Operation *op, const State &state, std::optional<Range> range) {
  if (!range)
    return true;
  if (!cast<ArenaOp>(stage.arenaOp).contains(range->begin, range->end) &&
      !clash(stage.arenaOp,
             "is too small, because '" + op->getName().getStringRef() + "' op writes bytes " + Twine(range->begin) +
                 " to " + Twine(range->end),
             nullptr, {}, op))
    return false;
  stage.bytes.write(*range, state, {op, calling});
  return true;
}

/// Returns true if the results overlap neither each other nor an operand that is still read while they are written.
/// `known` are the pairs that may share bytes, for all ops like this one.
bool Walk::mayWrite(Stage &stage, Operation *op, Sharing &known) {
  if (stage.arena < 0 || stage.inKernel)
    return true;
  auto start = dyn_cast<StartOp>(op);
  ResultRange results = start ? start.getWait()->getResults() : op->getResults();
  SmallVector<Range, 6> read, written;
  for (Value operand : op->getOperands())
    read.push_back(*rangeOf(stage, op, operand));
  for (OpResult result : results) {
    Range own = *rangeOf(stage, op, result);
    if (llvm::any_of(written, [&](const Range &other) { return own.overlaps(other); }))
      return clash(op, "writes two results to overlapping bytes", nullptr, {});
    written.push_back(own);
    unsigned r = result.getResultNumber();
    for (auto [o, operand] : llvm::enumerate(read)) {
      if (!own.overlaps(operand))
        continue;
      auto [it, isNew] = known.try_emplace({static_cast<unsigned>(o), r}, false);
      if (isNew)
        it->second =
            start ? o == r && mayShareHome(start.getMoves()[o], 0, 0) : mayShareHome(op, static_cast<unsigned>(o), r);
      if (operand != own || !it->second)
        return clash(op, "writes result " + Twine(r) + " over operand " + Twine(o) + ", which it still reads",
                     op->getOperand(o), {op, calling});
    }
  }
  return true;
}

bool Walk::holdLeaf(Stage &stage, Operation *leaf) {
  Value value = leaf->getResult(0);
  stage.last[leaf] = stateOf(value);
  return write(stage, leaf, value, stateOf(value));
}

/// At the end of the step, a leaf's bytes must hold its new value, or still the old one.
bool Walk::isHeld(Stage &stage, Operation *leaf, const State &last) {
  std::optional<Range> range = rangeOf(stage, leaf, leaf->getResult(0));
  return !range || stage.bytes.hold(*range, last) ||
         clash(leaf, "is not in its bytes any more at the end of the step", leaf->getResult(0),
               stage.bytes.writerOf(*range));
}
