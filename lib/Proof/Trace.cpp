//===- Trace.cpp - Finds the op that makes a proof fail --------------------------------------===//
// Input: a failed walk with a record of every value, and the same record of the step program. Result: the op to blame
// and what was expected of it. A value is strange if the step program does not have it. The op of the last strange
// value whose operands are not strange is to blame. This is a heuristic: it chooses the words of the error and never
// decides whether there is an error.
//===-----------------------------------------------------------------------------===//
#include "Trace.h"
#include "Packing.h"

#include "pc/IR/Liveness.h"
#include "pc/IR/PC.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// The text in parentheses at the end of an error. It names the attributes and ops that are usually wrong in such a
/// fault.
StringRef pc::proof::nameOf(FaultKind fault) {
  static constexpr StringRef names[] = {"collective, axis, dim, placement",
                                        "scale, constant, mask, rope",
                                        "clip norm",
                                        "gradient, optimizer, update",
                                        "wrong value read, addend dropped or doubled",
                                        "what data, which weight",
                                        "messages, microbatches, order",
                                        "waits and memory",
                                        "precision"};
  return names[static_cast<int>(fault)];
}

namespace {
using Made = Trace::Made;

/// An op of the step program that is similar to a wrong op, and how similar it is.
struct Likeness {
  const Made *step = nullptr;
  bool sameName = false, sameAttributes = false, sameOperands = false;
  bool isCopy = false;   ///< the differing operand is a copy
  int equal = 0;         ///< the number of equal operands
  int otherOperand = -1; ///< the first operand that differs
  int score() const { return 4 * sameName + 2 * sameAttributes + 3 * equal + 2 * sameOperands + isCopy; }
};

/// Finds the op to blame from two traces, by value, by place or by bytes. `before` has the states of the previous
/// phase, which count as right. It is null if that phase is the step program itself.
class Blamer {
public:
  /// Builds indices of both traces: by value, by readers of a value, and by value and place.
  Blamer(const Trace &trace, const Trace &step, const llvm::DenseSet<uint64_t> *before)
      : trace(trace), step(step), before(before) {
    for (auto [i, made] : llvm::enumerate(step.made)) {
      first.try_emplace(made.state.value, static_cast<int>(i));
      for (int from : made.from)
        if (from >= 0)
          readers[step.made[from].state.value].insert(static_cast<int>(i));
    }
    for (const Made &made : trace.made) {
      there.insert(keyOf(made.state.hash(), made.state.microbatch, programOf(made.op)));
      values.insert(keyOf(made.state.value.x, made.state.microbatch, programOf(made.op)));
    }
  }

  /// The cause of the failure, if the trace shows one before the op that failed.
  Blame blame(const Failure &failure) const {
    if (trace.strayView)
      return {trace.strayView, FaultKind::Data, "expected the microbatch of its task", std::nullopt};
    Blame blame = failure.fault == FaultKind::Memory ? ofBytes(failure.op) : ofValues(failure);
    if (blame.op == failure.op)
      blame.other = failure.other;
    return blame;
  }

private:
  /// The last wrong value whose operands are all right; if no value is wrong, the last wrong place whose operands have
  /// right places.
  Blame ofValues(const Failure &failure) const {
    int root = lastRoot(failure.from, [&](int made) { return isStrange(made); });
    if (root >= 0 || !before || failure.fault == FaultKind::Scale)
      return root < 0 ? atSink(failure) : explain(trace.made[root]);
    auto misplaced = [&](int made) { return isMisplaced(made); };
    root = lastRoot(failure.from, misplaced);
    Blame blame = root < 0 ? atSink(failure) : explain(trace.made[root]);
    for (int from : failure.from) // two operands contradict each other; the place of either may be wrong
      if (int other = lastRoot({from}, misplaced); other >= 0 && other != root)
        blame.other = trace.made[other].op;
    return blame;
  }

  static Operation *programOf(Operation *op) { return op->getParentOfType<ModuleOp>(); }
  using Keys = llvm::DenseSet<std::pair<uint64_t, Operation *>>;
  static std::pair<uint64_t, Operation *> keyOf(uint64_t what, int microbatch, Operation *program) {
    return {what ^ static_cast<uint64_t>(microbatch + 2) * 0xbf58476d1ce4e5b9ull, program};
  }
  /// Returns true if a stage has the value or place `what`, for this microbatch or for any microbatch.
  static bool has(const Keys &keys, uint64_t what, int microbatch, Operation *op) {
    Operation *program = programOf(op);
    return keys.contains(keyOf(what, microbatch, program)) || keys.contains(keyOf(what, State::ofAny, program));
  }
  bool isKnownBefore(const State &state) const { return before && before->contains(state.hash()); }
  /// Returns true if neither the step nor the previous phase has the value. Numbers of blocks are not compared.
  bool isStrange(int made) const {
    const State &state = trace.made[made].state;
    bool isOffset = state.where && (state.where->note.kind == Note::Offset || state.where->note.kind == Note::Counts);
    return !isOffset && state.value != Point() && !first.contains(state.value) && !isKnownBefore(state);
  }
  bool isMisplaced(int made) const {
    const State &state = trace.made[made].state;
    return state.where && state.where->note.kind == Note::None && state.value != Point() && !isKnownBefore(state);
  }

  /// The last wrong record with right operands among the wrong records that lead to `from`; -1: none. A sum of wrong
  /// values may be right again (in windows, or if sums have another order), so an earlier wrong value is not always the
  /// cause.
  int lastRoot(ArrayRef<int> from, llvm::function_ref<bool(int)> isWrong) const {
    SmallVector<int> todo(from);
    llvm::DenseSet<int> seen;
    int found = -1;
    while (!todo.empty()) {
      int made = todo.pop_back_val();
      if (made < 0 || !seen.insert(made).second || !isWrong(made))
        continue;
      ArrayRef<int> operands = trace.made[made].from;
      if (llvm::none_of(operands, [&](int operand) { return operand >= 0 && isWrong(operand); }))
        found = std::max(found, made);
      llvm::append_range(todo, operands);
    }
    return found;
  }

  /// Among values that overlap in memory, blames the one whose place is least like a planner's choice, or that overlaps
  /// the most others. By the same rule, chooses one of the values that it overlaps, and names it as well. Blames `op`
  /// if no two values overlap.
  Blame ofBytes(Operation *op) const {
    llvm::MapVector<Operation *, llvm::SetVector<Operation *>> others;
    for (const Trace::Clash &clash : trace.clashes) {
      bool apart = clash.makerCall != clash.writerCall;
      Operation *maker = apart && clash.makerCall ? clash.makerCall : clash.maker;
      Operation *writer = apart && clash.writerCall ? clash.writerCall : clash.writer;
      if (maker && writer && maker != writer) {
        others[maker].insert(writer);
        others[writer].insert(maker);
      }
    }
    Blame blame{op, FaultKind::Memory, "", std::nullopt};
    if (others.empty()) { // no two values overlap
      for (const Trace::Clash &clash : llvm::reverse(trace.clashes))
        blame.op = clash.maker ? clash.maker : op;
      return blame;
    }
    Packing packing;
    auto isLess = [&](Operation *a, Operation *b) { // an op with many results overlaps many values
      return std::tuple(packing.fit(b), others[a].size() * b->getNumResults()) <
             std::tuple(packing.fit(a), others[b].size() * a->getNumResults());
    };
    blame.op = std::max_element(others.begin(), others.end(), [&](auto &a, auto &b) {
                 return isLess(a.first, b.first);
               })->first;
    blame.other = *llvm::max_element(others[blame.op], isLess);
    return blame;
  }

  /// No value is strange, but the sink reads the wrong one.
  Blame atSink(const Failure &failure) const {
    Blame blame{failure.op, failure.fault, "", std::nullopt};
    // For a missing update, the value may exist without being stored.
    if (failure.from.empty() && failure.wanted) {
      // The last op that computes the wanted value in this program is the one to name.
      for (const Made &made : trace.made)
        if (made.state.value == *failure.wanted && programOf(made.op) == programOf(failure.op)) {
          blame.op = made.op;
          blame.expected = "expected an update with the value that it computes";
        }
      return blame;
    }
    if (failure.from.empty())
      return blame;
    int read = failure.from[0];
    auto wanted = failure.wanted ? first.find(*failure.wanted) : first.end();
    if (wanted != first.end() && read >= 0)
      return replaced(Made{failure.op, {}, {read}}, 0, step.made[wanted->second], blame);
    for (int from : failure.from)
      if (from >= 0 && isa<CopyOp>(trace.made[from].op)) {
        Blame copy = copied(trace.made[from]);
        copy.fault = failure.fault;
        return copy;
      }
    // If only the scale is wrong, an op that counts ranks or keys is the likely reason.
    Operation *last = nullptr; // the last op that computes an operand
    for (int from : failure.from)
      if (Operation *op = from < 0 ? nullptr : trace.made[from].op)
        if (failure.fault == FaultKind::Scale && isa<BlockOffsetOp, KeyCountsOp>(op))
          last = op;
    if (last)
      blame.op = last;
    if (isa<AdamWOp, SGDOp>(blame.op))
      blame.fault = FaultKind::Update;
    return blame;
  }

  static Point valueOf(const Trace &trace, int made) { return made < 0 ? Point() : trace.made[made].state.value; }

  /// Returns true if `read` is a copy of an operand of `right`.
  bool isInPlaceOf(const Made &read, const Made &right) const {
    return isa<CopyOp>(read.op) &&
           llvm::any_of(right.from, [&](int from) { return from >= 0 && valueOf(step, from) == read.state.value; });
  }

  /// `reader` should read `right` as its operand. Blames the reader, or the op that computed its operand.
  Blame replaced(const Made &reader, unsigned operand, const Made &right, Blame blame) const {
    const Made &read = trace.made[reader.from[operand]];
    State wanted = read.state;
    wanted.value = right.state.value;
    blame.step = right.op->getLoc();
    if (blame.fault == FaultKind::Value && (isTable(right.op) || isTable(read.op)))
      blame.fault = FaultKind::Scale;
    // The value that it reads is right for other readers, and the value that it should read exists, perhaps at other
    // places.
    bool isMixedUp = !isa<MoveOpInterface, CopyOp>(read.op) && first.contains(read.state.value) &&
                     has(values, wanted.value.x, wanted.microbatch, reader.op);
    if (isMixedUp || (!isInPlaceOf(read, right) && has(there, wanted.hash(), wanted.microbatch, reader.op))) {
      blame.op = whoReads(reader, operand, wanted.value);
      blame.expected =
          "expected operand " + std::to_string(operand) + " to be the result of the " + text(right.op) + "";
      return blame;
    }
    // If no op computes the wanted value, the op that computes this operand should have computed it, so that op is to
    // blame.
    if (isa<AccumulateOp, MicrobatchOp>(read.op) && isa<AccumulateOp, MicrobatchOp>(right.op) &&
        read.from.size() == 1 && right.from.size() == 1 && read.from[0] >= 0 && right.from[0] >= 0)
      return replaced(read, 0, step.made[right.from[0]], blame);
    if (isa<MoveOpInterface>(read.op) && !read.from.empty() && read.from[0] >= 0)
      return replaced(read, 0, right, blame);
    if (isa<CopyOp>(read.op) || read.op->getName() == right.op->getName()) {
      blame.op = read.op;
      blame.expected = isa<CopyOp>(read.op) || !isLeaf(right.op) ? "expected the " + text(right.op)
                                                                 : "expected " + differenceOf(read.op, right.op);
      if (isa<CopyOp>(read.op))
        blame.fault = isNorm(right.op)                        ? FaultKind::Norm
                      : isa<AddOp, SubOp, EinsumOp>(right.op) ? FaultKind::Value
                                                              : FaultKind::Scale;
      if (isa<InputOp, ParameterOp, StateOp>(right.op))
        blame.fault = FaultKind::Data;
    } else {
      blame.expected =
          "expected operand " + std::to_string(operand) + " to be the result of the " + text(right.op) + "";
    }
    return blame;
  }

  /// The op that chooses this operand: the reader, or the op that passes values into the reader's block or out of
  /// another block.
  Operation *whoReads(const Made &reader, unsigned operand, const Point &wanted) const {
    if (operand >= reader.op->getNumOperands())
      return reader.op;
    auto isWanted = [&](Value other) {
      auto it = trace.of.find(other);
      return it != trace.of.end() && it->second >= 0 && trace.made[it->second].state.value == wanted;
    };
    auto isIn = [&](Block *block) {
      return llvm::any_of(block->getArguments(), isWanted) ||
             llvm::any_of(*block, [&](Operation &op) { return llvm::any_of(op.getResults(), isWanted); });
    };
    Operation *who = reader.op;
    Value value = who->getOperand(operand);
    if (auto argument = dyn_cast<BlockArgument>(value); argument && !isIn(argument.getOwner())) {
      auto fusion = dyn_cast<FusionOp>(argument.getOwner()->getParentOp());
      if (!fusion)
        return reader.call ? reader.call : who;
      who = fusion;
      value = fusion.getInputs()[argument.getArgNumber()];
    }
    // If other ops read these results correctly, the yields are not exchanged.
    auto isReadRightly = [&](Value result) {
      return llvm::any_of(result.getUsers(), [&](Operation *user) {
        auto it = user->getNumResults() ? trace.of.find(user->getResult(0)) : trace.of.end();
        return it != trace.of.end() && it->second >= 0 && !isStrange(it->second);
      });
    };
    if (auto fusion = value.getDefiningOp<FusionOp>(); fusion && !isReadRightly(value))
      for (Value other : fusion.getResults())
        if (other != value && isWanted(other) && !other.use_empty() && !isReadRightly(other))
          return fusion.getBody().front().getTerminator();
    return who;
  }

  /// Compares an op of the program with an op of the step by name, attributes and operands.
  Likeness likeness(const Made &wrong, const Made &right) const {
    Likeness like;
    like.step = &right;
    like.sameName = wrong.op->getName() == right.op->getName();
    like.sameAttributes = like.sameName && differenceOf(wrong.op, right.op).empty();
    for (size_t i = 0; i < std::min(wrong.from.size(), right.from.size()); ++i)
      if (valueOf(trace, wrong.from[i]) == valueOf(step, right.from[i]))
        ++like.equal;
      else if (like.otherOperand < 0)
        like.otherOperand = static_cast<int>(i);
    like.sameOperands = like.otherOperand < 0 && like.equal > 0;
    int other = like.otherOperand < 0 || like.otherOperand >= static_cast<int>(wrong.from.size())
                    ? -1
                    : wrong.from[like.otherOperand];
    like.isCopy = other >= 0 && isa<CopyOp>(trace.made[other].op);
    return like;
  }

  /// The op of the step to which `wrong` most likely corresponds: one that reads the same value and is similar enough,
  /// or else the only missing op.
  std::optional<Likeness> nearest(const Made &wrong) const {
    std::optional<Likeness> best;
    for (int from : wrong.from) {
      auto it = from < 0 ? readers.end() : readers.find(trace.made[from].state.value);
      if (it == readers.end())
        continue;
      for (int candidate : it->second)
        if (Likeness like = likeness(wrong, step.made[candidate]); !best || like.score() > best->score())
          best = like;
    }
    return best && best->score() >= 5 ? best : onlyMissing(wrong);
  }

  /// The only op of the same name that the program lacks. It is used if no op reads the same values.
  std::optional<Likeness> onlyMissing(const Made &wrong) const {
    std::optional<Likeness> only;
    for (const Made &right : step.made) {
      if (right.op->getName() != wrong.op->getName() || right.from.size() != wrong.from.size() ||
          has(values, right.state.value.x, wrong.state.microbatch, wrong.op))
        continue;
      if (only)
        return std::nullopt;
      only = likeness(wrong, right);
    }
    return only;
  }

  /// Returns true if an op computes numbers that are the same in every step: rotations, positions, buckets of
  /// distances.
  static bool isTable(Operation *op) { return isa<RopeTableOp, IotaOp>(op); }

  /// Returns true if `wrong` lacks an optional part of `right`, such as the mask, addends or dropout of attention.
  static bool lacksPart(Operation *wrong, Operation *right) {
    auto parts = [](Operation *op) {
      auto sizes = op->getInherentAttr("operandSegmentSizes").value_or(Attribute());
      return sizes ? cast<DenseI32ArrayAttr>(sizes).asArrayRef() : ArrayRef<int32_t>();
    };
    return wrong->getName() == right->getName() &&
           llvm::any_of(llvm::zip_equal(parts(wrong), parts(right)),
                        [](auto part) { return std::get<0>(part) == 0 && std::get<1>(part) > 0; });
  }

  /// Returns true if the result of an op is used only for the norm of the gradient.
  static bool isNorm(Operation *op, int depth = 0) {
    return depth < 4096 && !op->use_empty() &&
           llvm::all_of(
               op->getUsers(),
               [&](Operation *user) {
                 if (auto output = dyn_cast<OutputOp>(user))
                   return output.getKind() == OutputKind::GradNorm;
                 bool isScalar =
                     user->getNumResults() == 1 && cast<RankedTensorType>(user->getResult(0).getType()).getRank() == 0;
                 return isa<ClipCoefficientOp>(user) || (isScalar && isNorm(user, depth + 1));
               });
  }

  static bool isBf16(Operation *op) {
    return op->getNumResults() && cast<RankedTensorType>(op->getResult(0).getType()).getElementType().isBF16();
  }

  /// "'pc.add' op of layers.0"
  static std::string text(Operation *op) {
    return ("'" + op->getName().getStringRef() + "' op of " + sourceName(op)).str();
  }

  static bool hasIndex(Operation *op) {
    return isa<IotaOp, EmbeddingOp, EmbeddingGradOp, PickOp, CrossEntropyGradOp, MaskPaddingOp>(op);
  }

  /// Blames a copy if the step program has another op on the same operand instead. Ops of `reader`'s kind do not count.
  Blame copied(const Made &copy, Operation *reader = nullptr) const {
    Blame blame{copy.op, FaultKind::Place, "", std::nullopt};
    auto it = copy.from.empty() || copy.from[0] < 0 ? readers.end() : readers.find(copy.state.value);
    for (int candidate : it == readers.end() ? ArrayRef<int>() : it->second.getArrayRef()) {
      const Made &right = step.made[candidate];
      if (isLeaf(right.op) || (reader && right.op->getName() == reader->getName()) ||
          has(values, right.state.value.x, copy.state.microbatch, copy.op))
        continue;
      blame.step = right.op->getLoc();
      blame.expected = "expected the " + text(right.op);
      blame.fault = isNorm(right.op)                        ? FaultKind::Norm
                    : isa<AddOp, SubOp, EinsumOp>(right.op) ? FaultKind::Value
                                                            : FaultKind::Scale;
      break;
    }
    return blame;
  }

  /// Explains an op that is to blame: finds the op that was expected, or the wrong operand.
  Blame explain(const Made &wrong) const {
    Operation *op = wrong.op;
    Blame blame{op, FaultKind::Value, "", std::nullopt};
    int mixed = State::ofAny;
    for (int from : wrong.from) {
      if (from < 0)
        continue;
      const Made &read = trace.made[from];
      if (isa<CopyOp>(read.op))
        // A copy instead of another op usually means that the op was left out.
        if (Blame copy = copied(read, op); copy.step || first.contains(wrong.state.value))
          return copy;
      if (read.state.microbatch < 0)
        continue;
      if (mixed >= 0 && mixed != read.state.microbatch && (wrong.call || !isa<AddOp>(op)))
        return {wrong.call ? wrong.call : op, FaultKind::Message,
                "reads values of microbatches " + std::to_string(mixed) + " and " +
                    std::to_string(read.state.microbatch),
                std::nullopt};
      mixed = read.state.microbatch;
    }
    // The value is right, so its place is wrong.
    if (first.contains(wrong.state.value) || isa<MoveOpInterface>(op)) {
      blame.fault = isa<BlockOffsetOp, KeyCountsOp>(op) || hasIndex(op) ? FaultKind::Scale : FaultKind::Place;
      for (int from : wrong.from)
        if (hasIndex(op) && from >= 0 && isa<BlockOffsetOp>(trace.made[from].op))
          blame.op = trace.made[from].op;
      return blame;
    }
    if (isLeaf(op)) {
      blame.fault = isa<ConstantOp, RopeTableOp>(op) ? FaultKind::Scale : FaultKind::Data;
      return blame;
    }
    // The most similar op of the step program shows what was expected.
    std::optional<Likeness> like = nearest(wrong);
    if (isa<CastOp>(op)) {
      blame.fault = FaultKind::Precision;
    } else if (like) {
      Operation *right = like->step->op;
      blame.step = right->getLoc();
      bool lacks = wrong.from.size() < like->step->from.size(); // the expected op has more operands
      bool isLess = lacksPart(op, right);
      bool isRounding = !isLess && like->sameName && like->sameAttributes && like->sameOperands && !lacks;
      blame.fault = isRounding                                               ? FaultKind::Precision
                    : isNorm(right)                                          ? FaultKind::Norm
                    : isLess || (isTable(op) && like->sameName)              ? FaultKind::Scale
                    : like->sameOperands && !isa<EinsumOp, AddOp, SubOp>(op) ? FaultKind::Scale
                                                                             : FaultKind::Value;
      if (isa<AdamWOp, SGDOp>(op))
        blame.fault = FaultKind::Update;
      if (!like->sameName)
        blame.expected = "expected the " + text(right);
      else if (!like->sameAttributes)
        blame.expected = "expected " + differenceOf(op, right);
      else if (isLess || (lacks && like->sameOperands))
        blame.expected = "expected " + std::to_string(like->step->from.size()) + " operands";
      else if (isRounding)
        blame.expected = isBf16(right) ? "expected the value rounded to bf16" : "expected the value in f32";
      else if (unsigned other = like->otherOperand; like->otherOperand >= 0 && other < wrong.from.size() &&
                                                    wrong.from[other] >= 0 && like->step->from[other] >= 0)
        return replaced(wrong, other, step.made[like->step->from[other]], blame);
    }
    if (isa<AdamWOp, SGDOp>(op))
      blame.fault = FaultKind::Update;
    if (isa<ClipCoefficientOp>(op))
      blame.fault = FaultKind::Norm;
    return blame;
  }

  const Trace &trace, &step;
  const llvm::DenseSet<uint64_t> *before;
  llvm::DenseMap<Point, int> first;                    ///< the first record of the step program with that value
  llvm::DenseMap<Point, llvm::SetVector<int>> readers; ///< for each value, records of the step program that read it
  Keys values;                                         ///< values of a stage, at any place
  Keys there;                                          ///< values of a stage with their places
};
} // namespace

/// Attributes that differ between ranks, such as layouts, are left out.
std::string pc::proof::differenceOf(Operation *wrong, Operation *right) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (StringAttr name : right->getName().getAttributeNames()) {
    Attribute own = wrong->getInherentAttr(name).value_or(Attribute());
    Attribute other = right->getInherentAttr(name).value_or(Attribute());
    if (own == other || llvm::is_contained({"operandSegmentSizes", "global", "layout", "key"}, name.getValue()))
      continue;
    auto drop = dyn_cast_or_null<DropAttr>(own), dropped = dyn_cast_or_null<DropAttr>(other);
    if (drop && dropped && drop.getThreshold() == dropped.getThreshold())
      continue; // local programs also have the start of the block
    os << (text.empty() ? "" : ", ") << (other ? "" : "no ") << name.getValue();
    if (other)
      other.print(os << " ", /*elideType=*/true);
  }
  return text;
}

Blame pc::proof::blame(const Failure &failure, const Trace &trace, const Trace &step,
                       const llvm::DenseSet<uint64_t> *before) {
  return Blamer(trace, step, before).blame(failure);
}
