//===- FactorRules.cpp - The factor rule of every op ------------------------------===//
// This file has one function per op that is not pointwise, in the order of PCOps.td. No other file defines how an op
// may be split.
//===-----------------------------------------------------------------------------===//
#include "ReshapeSpec.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Generation.h"
#include "pc/IR/MoveRows.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/Twine.h"

using namespace mlir;
using namespace pc;

/// The rule of `spec` without sizes. Rules are cached, because a program has few different ones, and passes need each
/// many times.
static const FactorRule &parsed(StringRef spec) {
  constexpr size_t most = 1024;
  static thread_local llvm::StringMap<FactorRule> known;
  if (known.size() >= most)
    known.clear();
  auto [it, isNew] = known.try_emplace(spec);
  if (isNew && !FactorRule::parse(spec, it->second))
    it->second = {};
  return it->second;
}

/// Takes the sizes of factors from the types of `op`.
static void fillSizes(FactorRule &rule, Operation *op) {
  auto fill = [&](Type type, ArrayRef<int> dims) {
    auto tensor = cast<RankedTensorType>(type);
    for (auto [f, size] : llvm::zip(dims, tensor.getShape()))
      if (!rule.factors[f].size)
        rule.factors[f].size = size;
  };
  for (auto [type, dims] : llvm::zip(op->getOperandTypes(), rule.operands))
    fill(type, dims);
  for (auto [type, dims] : llvm::zip(op->getResultTypes(), rule.results))
    fill(type, dims);
}

/// The rule of `spec` with sizes from the types of `op`. A spec that does not fit the op yields an empty rule, which
/// `verifyFactorOp` reports.
static FactorRule make(Operation *op, const Twine &spec) {
  SmallString<64> storage;
  FactorRule rule = parsed(spec.toStringRef(storage));
  if (rule.operands.size() > op->getNumOperands() || rule.results.size() != op->getNumResults())
    return {};
  rule.operands.resize(op->getNumOperands()); // trailing scalars (offsets) have no dims
  fillSizes(rule, op);
  return rule;
}

static FactorRule withLinear(FactorRule rule, std::initializer_list<unsigned> group) {
  rule.linear.push_back(llvm::SmallVector<unsigned, 2>(group));
  return rule;
}

static int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

/// "prefix0 prefix1 ..." for n dims.
static std::string letters(StringRef prefix, int64_t n) {
  std::string text;
  for (int64_t i = 0; i < n; ++i)
    text += (Twine(prefix) + Twine(i) + " ").str();
  return text;
}

/// The rule of a pointwise op: the first `operands` operands have the results' shape, and the others have no dims.
static FactorRule pointwise(Operation *op, unsigned operands) {
  FactorRule rule;
  auto dims = llvm::to_vector<6>(llvm::seq<int>(0, static_cast<int>(rankOf(op->getResult(0)))));
  for (int d : dims)
    rule.factors.push_back({"x" + std::to_string(d)});
  rule.operands.assign(operands, dims);
  rule.operands.resize(op->getNumOperands());
  rule.results.assign(op->getNumResults(), dims);
  fillSizes(rule, op);
  return rule;
}

FactorRule pc::detail::pointwiseRule(Operation *op, std::initializer_list<unsigned> linear, bool max) {
  FactorRule rule = pointwise(op, op->getNumOperands());
  rule.maxTransparent = max;
  if (linear.size())
    rule.linear.push_back(linear);
  return rule;
}

FactorRule RopeTableOp::getFactorRule() { return make(*this, "-> s h").keepWhole({"h"}); }
FactorRule IotaOp::getFactorRule() { return make(*this, getOffset() ? " -> s" : "-> s"); }

/// A product is linear in each operand separately, but not in two operands together.
FactorRule EinsumOp::getFactorRule() {
  FactorRule rule = make(*this, getSpec());
  for (unsigned i = 0; i < rule.operands.size(); ++i)
    rule.linear.push_back({i});
  return rule;
}

FactorRule DropoutOp::getFactorRule() {
  std::string x = letters("x", rankOf(getX()));
  return withLinear(make(*this, x + ", w -> " + x).keepWhole({"w"}), {0});
}

FactorRule ReduceMaxOp::getFactorRule() {
  FactorRule rule = make(*this, getSpec());
  rule.reduction = PartialKind::Max;
  rule.maxTransparent = true;
  return rule;
}

/// The rule of an op that works row by row: rows stay whole.
static FactorRule rowsRule(Operation *op) {
  std::string x = letters("x", rankOf(op->getOperand(0)) - 1) + "c";
  return make(op, x + " -> " + x).keepWhole({"c"});
}
FactorRule SoftmaxOp::getFactorRule() { return rowsRule(*this); }
FactorRule TopKOp::getFactorRule() { return rowsRule(*this); }
FactorRule TopGroupsOp::getFactorRule() { return rowsRule(*this); }
FactorRule AdmitOp::getFactorRule() { return make(*this, "b s n -> b s n").keepWhole({"s"}); }
/// The rows of a round depend on the whole mask, so no dim may be split.
FactorRule RoundOfRowsOp::getFactorRule() {
  FactorRule rule = rowsRule(*this);
  for (Factor &factor : rule.factors)
    factor.whole = true;
  return rule;
}
/// The rule of an op that computes along `dim`. All other dims may be split. `dim` may not, because its size changes,
/// so a rank would need entries of other ranks.
static FactorRule alongRule(Operation *op, int64_t dim) {
  int64_t rank = rankOf(op->getOperand(0));
  if (dim < 0 || dim >= rank)
    return {};
  std::string front = letters("x", dim), back = letters("y", rank - dim - 1);
  return withLinear(make(op, Twine(front) + "from " + back + "-> " + front + "to " + back).keepWhole({"from", "to"}),
                    {0});
}
FactorRule ColumnsOp::getFactorRule() { return alongRule(*this, along()); }
FactorRule ResizeOp::getFactorRule() { return alongRule(*this, static_cast<int64_t>(getDim())); }

/// The dim of a stack is whole, because every rank has all entries of its block of the other dims.
FactorRule StackOp::getFactorRule() {
  std::string x = letters("x", rankOf(getResult()) - 1), spec = x;
  for (size_t i = 1; i < getInputs().size(); ++i)
    spec += ", " + x;
  FactorRule rule = make(*this, spec + " -> n " + x).keepWhole({"n"});
  rule.linear.push_back(llvm::to_vector<2>(llvm::seq<unsigned>(0, getInputs().size())));
  return rule;
}
FactorRule UnstackOp::getFactorRule() {
  std::string x = letters("x", rankOf(getResult()));
  return withLinear(make(*this, "n " + x + "-> " + x).keepWhole({"n"}), {0});
}

/// A dim that both sides have may be split. So may a dim that is the first one of several on the other side: its blocks
/// are the blocks of their common dim.
FactorRule ReshapeOp::getFactorRule() {
  auto [left, right] = getSpec().split("->");
  std::optional<ReshapeDims> from = reshapeDims(left), to = reshapeDims(right);
  if (!from || !to)
    return {};
  FactorRule rule;
  auto nameOf = [](ArrayRef<StringRef> names, const ReshapeDims &others) {
    bool hasFirst = llvm::any_of(others, [&](const auto &other) { return ArrayRef(other) == names.take_front(); });
    return hasFirst ? names.front().str() : llvm::join(names, " ");
  };
  auto add = [&](const ReshapeDims &dims, const ReshapeDims &others, SmallVector<int, 6> &numbers) {
    for (const auto &names : dims) {
      std::string name = nameOf(names, others);
      int f = rule.find(name);
      numbers.push_back(f < 0 ? static_cast<int>(rule.factors.size()) : f);
      bool isShared = llvm::any_of(others, [&](const auto &other) { return nameOf(other, dims) == name; });
      if (f < 0)
        rule.factors.push_back({name, 0, /*whole=*/!isShared});
    }
  };
  add(*from, *to, rule.operands.emplace_back());
  add(*to, *from, rule.results.emplace_back());
  fillSizes(rule, *this);
  return withLinear(std::move(rule), {0});
}

/// The rule of a lookup: tables and ids to rows; or of its gradient: rows and ids to tables.
template <typename Op> static FactorRule lookupRule(Op op, Value table, bool isGradient) {
  int64_t batch = op.getBatch(), ids = rankOf(op.getIds()) - batch, width = rankOf(table) - batch - 1;
  if (batch < 0 || ids < 0 || width < 0)
    return {};
  std::string each = letters("b", batch), e = letters("e", width), index = each + letters("i", ids);
  std::string tables = each + "v " + e, rows = index + e;
  return withLinear(make(op, (isGradient ? rows : tables) + ", " + index + "-> " + (isGradient ? tables : rows)), {0});
}
FactorRule EmbeddingOp::getFactorRule() { return lookupRule(*this, getTable(), /*isGradient=*/false); }
FactorRule EmbeddingGradOp::getFactorRule() { return lookupRule(*this, getResult(), /*isGradient=*/true); }

FactorRule LayerNormOp::getFactorRule() {
  std::string r = letters("r", rankOf(getX()) - 1);
  return make(*this, r + "e, e, e -> " + r + "e, " + r + ", " + r).keepWhole({"e"});
}
FactorRule LayerNormGradOp::getFactorRule() {
  std::string r = letters("r", rankOf(getX()) - 1);
  return withLinear(make(*this, r + "e, " + r + "e, " + r + ", " + r + ", e -> " + r + "e, e, e").keepWhole({"e"}),
                    {0});
}
FactorRule RMSNormOp::getFactorRule() {
  std::string r = letters("r", rankOf(getX()) - 1);
  return make(*this, r + "e, e -> " + r + "e, " + r).keepWhole({"e"});
}
FactorRule RMSNormGradOp::getFactorRule() {
  std::string r = letters("r", rankOf(getX()) - 1);
  return withLinear(make(*this, r + "e, " + r + "e, " + r + ", e -> " + r + "e, e").keepWhole({"e"}), {0});
}

FactorRule RopeOp::getFactorRule() {
  std::string x = "b s " + letters("h", rankOf(getX()) - 3) + "d", table = rankOf(getCos()) == 3 ? ", b s c" : ", s c";
  return withLinear(make(*this, x + table + table + " -> " + x).keepWhole({"d", "c"}), {0});
}

/// The part of a spec for the optional operands of attention `op`: `bias`, `sinks`, `starts`, `random`, and `sees`.
/// `sees` has no dims or one entry per query.
template <typename Op> static std::string moreDims(Op op) {
  Value sees = op.getSees();
  return std::string(op.getBias() ? ", k g r" : "") + (op.hasSinks() ? ", k g" : "") + (op.getStarts() ? ", b s" : "") +
         (op.getRandom() ? ", w" : "") + (sees && rankOf(sees) ? ", s" : "");
}

/// Keys are never split. Queries are split only in zigzag order, in which ranks know the positions of their queries.
static FactorRule keepAttentionWhole(Operation *op, FactorRule rule) {
  rule.keepWhole({"t", "d"});
  for (StringRef more : {"w", "r"})
    if (rule.find(more) >= 0)
      rule.keepWhole({more});
  return zigzagRanks(op) ? rule : rule.keepWhole({"s"});
}
FactorRule AttentionOp::getFactorRule() {
  return keepAttentionWhole(*this,
                            make(*this, "b s k g d, b t k d, b t k d" + moreDims(*this) + " -> b s k g d, b k g s"));
}
/// For fixed q, k, v, o and lse, all gradients are linear in the gradient of o.
FactorRule AttentionGradOp::getFactorRule() {
  return withLinear(keepAttentionWhole(*this, make(*this, "b s k g d, b t k d, b t k d, b s k g d, b k g s, b s k g d" +
                                                              moreDims(*this) + " -> b s k g d, b t k d, b t k d" +
                                                              (getDbias() ? ", b k g r" : ""))),
                    {5});
}
/// `spec` with two tables after the operands if there are any. The dim of the parts, the query heads within it, and
/// rotated dims stay whole.
static FactorRule packedRule(Operation *op, StringRef from, ValueRange tables, StringRef to) {
  FactorRule rule = make(op, from + (tables.size() == 2 ? ", s c, s c -> " : " -> ") + to).keepWhole({"j", "g"});
  return tables.empty() ? rule : rule.keepWhole({"d", "c"});
}
FactorRule SplitQkvOp::getFactorRule() {
  return withLinear(packedRule(*this, "b s k j d", getTables(), "b s k g d, b s k d, b s k d"), {0});
}
FactorRule JoinQkvOp::getFactorRule() {
  return withLinear(packedRule(*this, "b s k g d, b s k d, b s k d", getTables(), "b s k j d"), {0, 1, 2});
}
FactorRule PackedAttentionOp::getFactorRule() {
  return make(*this, "b s k j d -> b s k g d, b k g s").keepWhole({"s", "j", "g", "d"});
}
FactorRule PackedAttentionGradOp::getFactorRule() {
  return withLinear(
      make(*this, "b s k j d, b s k g d, b k g s, b s k g d -> b s k j d").keepWhole({"s", "j", "g", "d"}), {3});
}
FactorRule MergeAttentionOp::getFactorRule() {
  return make(*this, "b s k g d, b k g s, b s k g d, b k g s -> b s k g d, b k g s");
}
FactorRule KeyCountsOp::getFactorRule() { return make(*this, " -> s").keepWhole({"s"}); }

FactorRule CrossEntropyOp::getFactorRule() {
  std::string r = letters("r", rankOf(getTargets()));
  return make(*this, r + "v, " + r + "-> " + r).keepWhole({"v"});
}
FactorRule LogSumExpOp::getFactorRule() {
  std::string r = letters("r", rankOf(getResult()));
  return make(*this, r + "v -> " + r).keepWhole({"v"});
}
FactorRule SumExpOp::getFactorRule() {
  std::string r = letters("r", rankOf(getMax()));
  return make(*this, r + "v, " + r + "-> " + r);
}
FactorRule PickOp::getFactorRule() {
  std::string r = letters("r", rankOf(getTargets()));
  return withLinear(make(*this, r + "v, " + r + "-> " + r), {0});
}
FactorRule CrossEntropyGradOp::getFactorRule() {
  std::string r = letters("r", rankOf(getTargets()));
  return withLinear(make(*this, r + "v, " + r + ", " + r + ", " + r + ", " + r + " -> " + r + "v"), {4});
}
FactorRule RecurrenceOp::getFactorRule() {
  StringRef along = getAlong();
  return withLinear(make(*this, getSpec()).keepWhole({along}), {1});
}
/// The dims that a lacks are summed in da.
FactorRule RecurrenceGradOp::getFactorRule() {
  auto [a, more] = getSpec().split(",");
  StringRef h = more.split("->").second, along = getAlong();
  return withLinear(make(*this, a + "," + h + "," + h + "->" + a + "," + h).keepWhole({along}), {2});
}
FactorRule MaskPaddingOp::getFactorRule() {
  FactorRule rule = pointwise(*this, 1);
  return getValue().isZero() ? withLinear(std::move(rule), {0}) : rule;
}

FactorRule CacheWriteOp::getFactorRule() {
  std::string cache = hasParts() ? "r b n k t d" : "b n k t d";
  return make(*this, cache + ", b s k d, b s, b s -> " + cache).keepWhole({"n", "t", "s"});
}
FactorRule CachedAttentionOp::getFactorRule() {
  StringRef part = hasParts() ? "r " : "", lse = hasParts() ? ", b s k g r" : "";
  std::string cache = (", " + part + "b n k t d").str();
  std::string more = std::string(getBias() ? ", k g w" : "") + (getSinks() ? ", k g" : "");
  FactorRule rule = make(*this, "b s k g d" + cache + cache + ", b s, b s" + more + " -> " + part + "b s k g d" + lse)
                        .keepWhole({"n", "t", "d"});
  return getBias() ? rule.keepWhole({"w"}) : rule;
}
FactorRule GumbelOp::getFactorRule() {
  return make(*this, Twine("b m v, b m c, b m u") + (getAbove() ? ", b m" : "") + " -> b m v").keepWhole({"c", "u"});
}
FactorRule SamplingThresholdOp::getFactorRule() { return make(*this, "b m v, b m c -> b m").keepWhole({"v", "c"}); }

/// The factors of ops on blocks are blocks: their sizes are the sizes of the scales.
static FactorRule blocksRule(Operation *op, const FactorRule &ofElements, ArrayRef<int64_t> blocks) {
  FactorRule rule = ofElements;
  for (auto [factor, size] : llvm::zip(rule.factors, blocks))
    factor.size = size;
  return rule;
}
FactorRule EncodeOp::getFactorRule() {
  std::string x = letters("x", rankOf(getX()));
  return blocksRule(*this, make(*this, x + " -> " + x + ", " + x),
                    cast<RankedTensorType>(getScales().getType()).getShape());
}
FactorRule DecodeOp::getFactorRule() {
  std::string x = letters("x", rankOf(getCodes()));
  if (!rankOf(getScales()))
    return make(*this, x + ", -> " + x);
  return blocksRule(*this, make(*this, x + ", " + x + " -> " + x),
                    cast<RankedTensorType>(getScales().getType()).getShape());
}

FactorRule MaxMagnitudeOp::getFactorRule() {
  FactorRule rule = make(*this, getSpec());
  rule.reduction = PartialKind::Max;
  return rule;
}
FactorRule Float8ScaleOp::getFactorRule() { return make(*this, " -> "); }
FactorRule EncodeScaledOp::getFactorRule() {
  std::string x = letters("x", rankOf(getX()));
  return make(*this, x + ", -> " + x);
}

FactorRule ClipCoefficientOp::getFactorRule() { return make(*this, ", h -> ").keepWhole({"h"}); }

FactorRule AdamWOp::getFactorRule() {
  std::string x = letters("x", rankOf(getParameter()));
  return make(*this, x + ", " + x + ", " + x + ", " + x + ", , h -> " + x + ", " + x + ", " + x).keepWhole({"h"});
}
FactorRule SGDOp::getFactorRule() {
  std::string x = letters("x", rankOf(getParameter()));
  return make(*this, x + ", " + x + ", , h -> " + x).keepWhole({"h"});
}

//===---------------------------------------------------------------------------===//
// Functions of the rules
//===---------------------------------------------------------------------------===//

static bool hasGroup(const FactorRule &rule, ArrayRef<unsigned> group) {
  return llvm::any_of(rule.linear, [&](const auto &linear) { return ArrayRef<unsigned>(linear) == group; });
}

bool pc::isLinearIn(Operation *op, unsigned operand) {
  auto factored = dyn_cast<FactorOpInterface>(op);
  return isa<MoveOpInterface>(op) || (factored && hasGroup(factored.getFactorRule(), operand));
}

bool pc::isLinearMap(Operation *op) {
  auto factored = dyn_cast<FactorOpInterface>(op);
  unsigned n = factored ? factored.getNumElementwise() : 0;
  return n && hasGroup(factored.getFactorRule(), llvm::to_vector(llvm::seq(n)));
}
