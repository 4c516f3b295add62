//===- ExpertLoop.cpp - Raises experts that a loop computes -----------------------------------===//
// Begins at a sum of addends, one per expert. Each addend has the expert's entry of the same weights of a choice. The
// addends must be computed by the same ops, from the same values and from parameters that only these ops read. Then one
// op with a dim of experts replaces the ops of all experts, and one packed parameter replaces their parameters. Then
// raiseExperts routes the sum. If that fails, all changes are undone.
//===------------------------------------------------------------------------------------------===//
#include "Patterns.h"
#include "Product.h"

#include "pc/IR/Parts.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace pc;

namespace {

/// The entries of `value` at index `index` of dim `dim`. The other dims are those of the result, in order. There may
/// still be a dim of size 1 at `dim`.
struct Entry {
  Value value;
  int dim;
  int64_t index;
};

/// Values of the experts as one value: stacked along a new dim, or one value that is the same for all experts.
struct Stacked {
  Value value; ///< null: there is none
  bool hasExperts = false;
  int dim = 0; ///< the new dim, which is the first one except in parameters
};

/// Builds the ops of all experts before `root`.
class Experts {
public:
  Experts(Operation *root, size_t count) : root(root), count(count) {
    int64_t position = 0;
    for (auto parameter : root->getBlock()->getOps<ParameterOp>()) {
      positions[parameter] = position;
      position += numParts(parameter);
    }
  }

  Stacked stack(ArrayRef<Value> values);
  /// Returns true if all other parameters keep their positions when parameters are packed.
  bool keepsPositions() const;
  /// Erases all new ops.
  void undo();
  /// Erases the ops of single experts, which nothing reads any more, and their parameters.
  void eraseOld();
  /// Records an op that undo() erases.
  Operation *note(Operation *op) {
    built.push_back(op);
    return op;
  }

private:
  Stacked stackNew(ArrayRef<Value> values);
  Stacked pack(ArrayRef<Value> values, int along);
  bool stackOperands(ArrayRef<Value> values, SmallVectorImpl<Stacked> &operands);
  Stacked stackEntries(ArrayRef<Value> values);
  Stacked stackOps(ArrayRef<Value> values);

  Operation *root;
  size_t count;
  llvm::DenseMap<Value, std::pair<SmallVector<Value>, Stacked>> known; ///< keyed by the value of the first expert
  SmallVector<Operation *> built;
  SmallVector<ParameterOp> packed;                ///< the parameters of single experts
  llvm::DenseMap<Operation *, int64_t> positions; ///< positions of parameters among all imported ones
};

} // namespace

/// Whether `value` has one dim and is 1 at one index and 0 elsewhere; writes the index.
static bool isOneHot(Value value, int64_t &index) {
  auto select = value.getDefiningOp<SelectOp>();
  if (!select || typeOf(value).getRank() != 1 || select.getKind() != ComparisonKind::Equal)
    return false;
  for (auto [x, y] : {std::pair(select.getX(), select.getY()), std::pair(select.getY(), select.getX())}) {
    std::optional<double> number = constantOf(y);
    if (!number || countedDim(x) != 0 || constantOf(select.getA()) != 1 || constantOf(select.getB()) != 0)
      continue;
    index = static_cast<int64_t>(*number);
    return static_cast<double>(index) == *number;
  }
  return false;
}

/// Recognises one entry along a dim: as a slice, or as a product with a vector that is 1 at one index.
static std::optional<Entry> entryOf(Value value) {
  if (auto columns = value.getDefiningOp<ColumnsOp>()) {
    auto dim = static_cast<int>(columns.along());
    if (typeOf(value).getDimSize(dim) != 1 || columns.getStep() != 1 || columns.getEvery() != 1)
      return std::nullopt;
    return Entry{columns.getX(), dim, static_cast<int64_t>(columns.getFrom())};
  }
  auto einsum = value.getDefiningOp<EinsumOp>();
  if (!einsum || einsum.getRoutedAttr() || einsum.getInputs().size() != 2)
    return std::nullopt;
  FactorRule rule = einsum.getFactorRule();
  for (unsigned hot : {0u, 1u}) {
    Entry entry{einsum.getInputs()[1 - hot], 0, 0};
    ArrayRef<int> of = rule.operands[1 - hot];
    if (!isOneHot(einsum.getInputs()[hot], entry.index))
      continue;
    entry.dim = static_cast<int>(llvm::find(of, rule.operands[hot][0]) - of.begin());
    if (entry.dim < static_cast<int>(of.size()) && ArrayRef(without(of, entry.dim)) == ArrayRef<int>(rule.results[0]))
      return entry;
  }
  return std::nullopt;
}

Stacked Experts::stack(ArrayRef<Value> values) {
  auto it = known.find(values[0]);
  if (it != known.end())
    return ArrayRef(it->second.first) == values ? it->second.second : Stacked{};
  Stacked result = stackNew(values);
  known[values[0]] = {SmallVector<Value>(values), result};
  return result;
}

/// Whether ops of the same kind and type compute the values.
static bool canStack(ArrayRef<Value> values) {
  Operation *first = values[0].getDefiningOp();
  return first && first->getNumResults() == 1 && llvm::all_of(values, [&](Value value) {
           Operation *op = value.getDefiningOp();
           return op && op->getName() == first->getName() && value.getType() == values[0].getType();
         });
}

Stacked Experts::stackNew(ArrayRef<Value> values) {
  if (llvm::all_equal(values))
    return {values[0], false};
  if (!canStack(values))
    return {};
  if (isa<ParameterOp>(values[0].getDefiningOp()))
    return pack(values, 0);
  if (Stacked entries = stackEntries(values); entries.value)
    return entries;
  return stackOps(values);
}

/// Stacks entry i of one value for each expert i.
Stacked Experts::stackEntries(ArrayRef<Value> values) {
  std::optional<Entry> first = entryOf(values[0]);
  if (!first || typeOf(first->value).getDimSize(first->dim) != static_cast<int64_t>(count))
    return {};
  for (auto [i, value] : llvm::enumerate(values)) {
    std::optional<Entry> entry = entryOf(value);
    if (!entry || entry->value != first->value || entry->dim != first->dim || entry->index != static_cast<int64_t>(i))
      return {};
  }
  SmallVector<int> dims = dimsOf(first->value), result = without(dims, first->dim);
  SmallVector<int64_t> shape(typeOf(values[0]).getShape());
  if (shape.size() == dims.size()) // the dim of size 1
    result.insert(result.begin() + first->dim, static_cast<int>(dims.size()));
  result.insert(result.begin(), first->dim);
  shape.insert(shape.begin(), static_cast<int64_t>(count));
  OpBuilder builder(root);
  Value stacked = multiply(builder, root->getLoc(), Term{first->value, dims}, result, 1, shape);
  if (stacked != first->value)
    note(stacked.getDefiningOp());
  return {stacked, true};
}

/// Returns the names of parameters that differ in one part, with a star instead of this part. If `isTaken` returns true
/// for this name, a list of the parts replaces the star.
static std::string commonName(ArrayRef<StringRef> names, llvm::function_ref<bool(StringRef)> isTaken) {
  StringRef first = names[0];
  size_t front = first.size(), back = first.size();
  for (StringRef name : names) {
    size_t same = 0, most = std::min(name.size(), first.size());
    while (same < most && name[same] == first[same])
      ++same;
    front = std::min(front, same);
  }
  for (StringRef name : names) {
    size_t same = 0, most = std::min(name.size(), first.size()) - front;
    while (same < most && name[name.size() - 1 - same] == first[first.size() - 1 - same])
      ++same;
    back = std::min(back, same);
  }
  auto around = [&](const Twine &middle) { return (first.take_front(front) + middle + first.take_back(back)).str(); };
  std::string name = around("*");
  if (!isTaken(name))
    return name;
  auto middles = llvm::map_to_vector(names, [&](StringRef each) { return each.drop_front(front).drop_back(back); });
  return around("{" + llvm::join(middles, ",") + "}");
}

/// Whether two parameters may be packed together. Parts of a packed parameter have the same kind of initial values.
/// Parameters with different kinds may be packed only if a run reads their weights from a file.
static bool canPack(ParameterOp a, ParameterOp b) {
  auto program = a->getParentOfType<ModuleOp>().getOps<ProgramOp>();
  bool hasWeights = !program.empty() && (*program.begin()).getWeights();
  return a->hasOneUse() && b->hasOneUse() && a.getDims() == b.getDims() && (hasWeights || a.getInit() == b.getInit()) &&
         b.getInit().getZeroRow() == -1 && b.getSource() && !b.getValid() && !b.getGlobal() && !b.getKey() &&
         a.getFrozen() == b.getFrozen() && a.getGroupAttr() == b.getGroupAttr();
}

/// Packs parameters, with a dim of experts before dim `along`.
Stacked Experts::pack(ArrayRef<Value> values, int along) {
  auto first = values[0].getDefiningOp<ParameterOp>();
  SmallVector<Attribute> parts;
  SmallVector<StringRef> names;
  for (Value value : values) {
    auto parameter = value.getDefiningOp<ParameterOp>();
    if (!canPack(first, parameter) || first->getBlock() != parameter->getBlock())
      return {};
    names.push_back(parameter.getName());
    packed.push_back(parameter);
    parts.push_back(
        PartAttr::get(first.getContext(), parameter.getName(), positions.lookup(parameter), 1, *parameter.getSource()));
  }
  SmallVector<StringRef> dims(first.getDims().getAsValueRange<StringAttr>());
  SmallVector<int64_t> shape(typeOf(values[0]).getShape());
  dims.insert(dims.begin() + along, "experts");
  shape.insert(shape.begin() + along, static_cast<int64_t>(count));
  OpBuilder builder(first);
  auto name = builder.getStringAttr(commonName(names, [&](StringRef text) {
    return llvm::any_of(first->getBlock()->getOps<ParameterOp>(),
                        [&](ParameterOp other) { return other.getName() == text; });
  }));
  auto all = ParameterOp::create(
      builder, NameLoc::get(name), RankedTensorType::get(shape, typeOf(values[0]).getElementType()), name,
      builder.getStrArrayAttr(dims), first.getInit(), nullptr, builder.getI64IntegerAttr(along),
      builder.getArrayAttr(parts), nullptr, nullptr, nullptr, nullptr, first.getFrozenAttr(), first.getGroupAttr());
  note(all);
  return {all.getValue(), true, along};
}

/// Stacks the operands of the same op for all experts; parameters come last. A parameter that is multiplied by a value
/// of each expert gets the dim of experts before the dims that are summed, as imported parameters have it. Then both
/// are one dim of a matrix product over all experts, which some targets compute.
bool Experts::stackOperands(ArrayRef<Value> values, SmallVectorImpl<Stacked> &operands) {
  Operation *first = values[0].getDefiningOp();
  auto einsum = dyn_cast<EinsumOp>(first);
  FactorRule rule = einsum ? einsum.getFactorRule() : FactorRule();
  auto isParameter = [&](unsigned i) { return isa_and_nonnull<ParameterOp>(first->getOperand(i).getDefiningOp()); };
  operands.resize(first->getNumOperands());
  for (bool parameters : {false, true})
    for (unsigned i = 0; i < operands.size(); ++i) {
      if (isParameter(i) != parameters)
        continue;
      auto own = llvm::map_to_vector(values, [&](Value value) { return value.getDefiningOp()->getOperand(i); });
      int along = 0;
      auto isSummed = [&](int f) {
        return !llvm::is_contained(rule.results[0], f) &&
               llvm::any_of(llvm::seq<size_t>(0, operands.size()), [&](size_t j) {
                 return j != i && operands[j].hasExperts && llvm::is_contained(rule.operands[j], f);
               });
      };
      if (einsum && parameters)
        if (const int *at = llvm::find_if(rule.operands[i], isSummed); at != rule.operands[i].end())
          along = static_cast<int>(at - rule.operands[i].begin());
      operands[i] = along && !llvm::all_equal(own) && canStack(own) ? pack(own, along) : stack(own);
      if (!operands[i].value)
        return false;
    }
  return true;
}

/// Builds one op for all experts from the ops of single ones. In a product, operands that all experts share get no dim
/// of experts.
Stacked Experts::stackOps(ArrayRef<Value> values) {
  Operation *first = values[0].getDefiningOp();
  // The ops must be equal except for their operands.
  for (Value value : values)
    if (value.getDefiningOp()->getAttrDictionary() != first->getAttrDictionary() ||
        value.getDefiningOp()->getNumOperands() != first->getNumOperands() ||
        value.getDefiningOp()->getBlock() != root->getBlock())
      return {};
  SmallVector<Stacked> operands;
  if (!stackOperands(values, operands))
    return {};
  if (llvm::none_of(operands, [](const Stacked &operand) { return operand.hasExperts; }))
    return {values[0], false};
  OpBuilder builder(root);
  SmallVector<int64_t> shape(typeOf(values[0]).getShape());
  shape.insert(shape.begin(), static_cast<int64_t>(count));
  auto type = RankedTensorType::get(shape, typeOf(values[0]).getElementType());
  auto einsum = dyn_cast<EinsumOp>(first);
  if (einsum && !einsum.getRoutedAttr()) {
    FactorRule rule = einsum.getFactorRule();
    auto text = [&](ArrayRef<int> dims, bool hasExperts, int at) {
      SmallVector<StringRef> names = llvm::map_to_vector(dims, [&](int f) { return StringRef(rule.factors[f].name); });
      if (hasExperts)
        names.insert(names.begin() + at, "experts");
      return llvm::join(names, " ");
    };
    SmallVector<std::string> texts;
    SmallVector<Value> inputs;
    for (auto [operand, dims] : llvm::zip_equal(operands, rule.operands)) {
      texts.push_back(text(dims, operand.hasExperts, operand.dim));
      inputs.push_back(operand.value);
    }
    if (rule.find("experts") >= 0)
      return {};
    auto op = EinsumOp::create(builder, first->getLoc(), type,
                               llvm::join(texts, ", ") + " -> " + text(rule.results[0], true, 0), inputs);
    note(op);
    return {op.getResult(), true};
  }
  if (!first->hasTrait<Pointwise>())
    return {};
  // A pointwise op needs operands of the same shape, so a shared operand is repeated for each expert.
  for (Stacked &operand : operands)
    if (!operand.hasExperts) {
      SmallVector<int> dims = dimsOf(operand.value), result(dims);
      result.insert(result.begin(), static_cast<int>(dims.size()));
      auto wide = type.clone(typeOf(operand.value).getElementType());
      operand.value = multiply(builder, first->getLoc(), Term{operand.value, dims}, result, 1, wide.getShape());
      note(operand.value.getDefiningOp());
    }
  Operation *op = note(builder.clone(*first));
  for (auto [i, operand] : llvm::enumerate(operands))
    op->setOperand(static_cast<unsigned>(i), operand.value);
  op->getResult(0).setType(type);
  return {op->getResult(0), true};
}

/// Other parameters keep their positions if the packed ones are adjacent.
bool Experts::keepsPositions() const {
  if (packed.empty())
    return true;
  auto found = llvm::map_to_vector(packed, [&](ParameterOp parameter) { return positions.lookup(parameter); });
  return *llvm::max_element(found) - *llvm::min_element(found) + 1 == static_cast<int64_t>(found.size());
}

void Experts::undo() {
  for (Operation *op : llvm::reverse(built))
    op->erase();
}

void Experts::eraseOld() {
  for (Operation *op = root; op;) {
    Operation *before = op->getPrevNode();
    auto parameter = dyn_cast<ParameterOp>(op);
    bool isKept = !op->getNumResults() || isa<InputOp>(op) || (parameter && !llvm::is_contained(packed, parameter));
    if (op->use_empty() && !isKept)
      op->erase();
    op = before;
  }
}

/// Returns the addends of a sum, in order. Inner sums are opened if they have no other readers.
static void addendsOf(Value value, bool isRoot, SmallVector<Value> &addends) {
  auto sum = value.getDefiningOp<AddOp>();
  if (!sum || (!isRoot && !value.hasOneUse()))
    return addends.push_back(value);
  addendsOf(sum.getA(), false, addends);
  addendsOf(sum.getB(), false, addends);
}

/// Returns the entry that a product contains, if the entry is one of the weights of a choice.
static std::optional<Entry> shareIn(Value value) {
  for (const Term &term : productOf(value).terms)
    for (Value share = term.value; share;) {
      if (std::optional<Entry> entry = entryOf(share))
        return entry;
      auto einsum = share.getDefiningOp<EinsumOp>(); // removes a dim of size 1
      share = einsum && einsum.getInputs().size() == 1 ? einsum.getInputs()[0] : Value();
    }
  return std::nullopt;
}

/// Returns the values that `sum` stacks along `dim`. Such a sum adds values that were padded with zeros, to entry 0, 1,
/// 2, ...
static SmallVector<Value> stackedIn(Value sum, int &dim) {
  SmallVector<Value> addends, values;
  if (!sum.hasOneUse() || !sum.getDefiningOp<AddOp>())
    return {};
  addendsOf(sum, true, addends);
  for (auto [i, addend] : llvm::enumerate(addends)) {
    auto columns = addend.getDefiningOp<ColumnsOp>();
    if (!columns || columns.getStep() != 1 || columns.getEvery() != 1 ||
        static_cast<int64_t>(columns.getFrom()) != -static_cast<int64_t>(i) || (i > 0 && columns.along() != dim))
      return {};
    dim = static_cast<int>(columns.along());
    values.push_back(columns.getX());
  }
  bool isWhole = typeOf(sum).getDimSize(dim) == static_cast<int64_t>(values.size()) &&
                 llvm::all_of(values, [&](Value value) { return typeOf(value).getDimSize(dim) == 1; });
  return isWhole ? values : SmallVector<Value>();
}

/// Raises a sum over experts whose results were stacked.
static bool raiseStack(EinsumOp root) {
  for (auto [i, operand] : llvm::enumerate(root.getInputs())) {
    int dim = -1;
    SmallVector<Value> values = stackedIn(operand, dim);
    if (values.size() < 2)
      continue;
    Experts experts(root, values.size());
    Stacked stacked = experts.stack(values);
    if (!stacked.hasExperts || !experts.keepsPositions())
      return experts.undo(), false;
    // The dim of experts replaces the dim of size 1.
    OpBuilder builder(root);
    SmallVector<int> dims = dimsOf(operand), all(dims);
    all[dim] = static_cast<int>(dims.size());
    all.insert(all.begin(), dim);
    Value joined = multiply(builder, root.getLoc(), Term{stacked.value, all}, dims);
    experts.note(joined.getDefiningOp());
    auto dense = cast<EinsumOp>(experts.note(builder.clone(*root)));
    dense->setOperand(static_cast<unsigned>(i), joined);
    Value sum = routedExperts(dense);
    if (!sum)
      return experts.undo(), false;
    replaceResult(root, sum);
    experts.eraseOld();
    return true;
  }
  return false;
}

bool pc::raiseExpertLoop(Operation *op) {
  if (auto einsum = dyn_cast<EinsumOp>(op))
    return !einsum.getRoutedAttr() && raiseStack(einsum);
  auto root = dyn_cast<AddOp>(op);
  if (!root)
    return false;
  SmallVector<Value> all, others, shares;
  addendsOf(root.getResult(), true, all);
  if (!shareIn(all.front()) && !shareIn(all.back()))
    return false; // most sums
  std::optional<Entry> first;
  for (Value addend : all) {
    std::optional<Entry> share = shareIn(addend);
    first = first ? first : share;
    if (share && share->value == first->value && share->dim == first->dim)
      shares.push_back(addend);
    else if (constantOf(addend) != 0)
      others.push_back(addend);
  }
  // Each expert must have exactly one share, for otherwise the sum is not the one over all experts.
  if (!first || shares.size() < 2 || typeOf(first->value).getDimSize(first->dim) != static_cast<int64_t>(shares.size()))
    return false;
  Experts experts(root, shares.size());
  Stacked stacked = experts.stack(shares);
  if (!stacked.hasExperts || !experts.keepsPositions())
    return experts.undo(), false;
  OpBuilder builder(root);
  SmallVector<int> dims = dimsOf(stacked.value);
  Value dense = multiply(builder, root.getLoc(), Term{stacked.value, dims}, ArrayRef(dims).drop_front());
  experts.note(dense.getDefiningOp());
  Value sum = routedExperts(dense.getDefiningOp<EinsumOp>());
  if (!sum)
    return experts.undo(), false;
  for (Value other : others)
    sum = AddOp::create(builder, root.getLoc(), sum.getType(), other, sum);
  replaceResult(root, sum);
  experts.eraseOld();
  return true;
}
