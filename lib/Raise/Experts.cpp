//===- Experts.cpp - Raises experts that all tokens compute -----------------------------------===//
// Begins at a sum over experts. If a factor of the sum is 0 wherever `pc.top_k` is 0, an expert needs only the tokens
// that have chosen it. So the sum becomes an einsum that is routed by this choice. The einsums before it that compute
// values by token and expert also become routed. Elements that no token has chosen change, but nothing reads them. As
// in pc-import, the weights of a choice multiply before the last product, so that no value has the width of the model
// for each expert.
//===------------------------------------------------------------------------------------------===//
#include "Patterns.h"
#include "Product.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace pc;

namespace {

/// A choice, and the dims of a value that are the dims of the choice. These are the tokens, and last the experts.
struct Chosen {
  TopKOp choice;
  SmallVector<int> dims;
};

/// A sum over experts. Dims of its products are numbered as in `ProductForm`.
class ExpertSum {
public:
  explicit ExpertSum(EinsumOp root) : root(root) {}

  /// Returns true if this is a sum over experts to which only chosen experts contribute. Changes nothing.
  bool match();
  /// Builds the routed form before the root.
  Value rewrite();

private:
  bool isToken(int dim) const { return llvm::is_contained(ArrayRef(mask).drop_back(), dim); }
  bool isEntry(const Term &term) const;
  bool isOfExperts(const Term &term) const;
  bool isMask(const Term &term) { return term.value == choice.getResult() && term.dims == mask; }
  bool open(size_t at);
  bool openEinsum(ProductForm &product, size_t i);
  bool collect(Value entry, ArrayRef<int> dims);
  bool collectProduct(const ProductForm &product);
  bool isDeadAfter(Operation *op);

  Term entryTerm(const Term &term) const;
  void rebuild(Operation *op);
  Value routed(ArrayRef<Term> terms, ArrayRef<int> result, ArrayRef<int> choiceDims,
               const llvm::DenseMap<int, int64_t> &sizes, double scale = 1);
  Value build(const ProductForm &product);
  void nameParameter(const Term &term, int experts, ArrayRef<int> hidden);
  void nameRouter(Value value, int dim);
  void numberChoice();

  EinsumOp root;
  TopKOp choice;
  SmallVector<int> mask; ///< dims of the products along the choice
  SmallVector<ProductForm> addends;
  llvm::MapVector<Value, SmallVector<int>> entries; ///< values by token and expert, and their dims along the choice
  llvm::DenseMap<Operation *, bool> dead;
  llvm::DenseMap<Value, Value> made; ///< the new value of an entry, whose first dims are those of the choice
  llvm::DenseSet<Value> named;       ///< values of the router whose parameters have been named
  bool hasWeights = false;           ///< whether a parameter of experts is multiplied
};

} // namespace

/// The choice that `value` is, with dims that may be broadcast or transposed.
static std::optional<Chosen> choiceIn(Value value) {
  ProductForm product = productOf(value);
  if (product.terms.size() != 1 || product.scale != 1 || product.summed())
    return std::nullopt;
  auto choice = product.terms[0].value.getDefiningOp<TopKOp>();
  return choice ? std::optional(Chosen{choice, product.terms[0].dims}) : std::nullopt;
}

/// Recognises select(choice = 1, x, number), with a number that `isLow`.
static std::optional<Chosen> keptIn(Value value, llvm::function_ref<bool(double)> isLow) {
  auto select = value.getDefiningOp<SelectOp>();
  std::optional<double> other = select ? constantOf(select.getB()) : std::nullopt;
  if (!other || select.getKind() != ComparisonKind::Equal || !isLow(*other))
    return std::nullopt;
  for (auto [x, y] : {std::pair(select.getX(), select.getY()), std::pair(select.getY(), select.getX())})
    if (constantOf(y) == 1)
      return choiceIn(x);
  return std::nullopt;
}

/// Whether `value` is 1 where its two indices are equal, and 0 elsewhere.
static bool isIdentity(Value value) {
  auto select = value.getDefiningOp<SelectOp>();
  if (!select || typeOf(value).getRank() != 2 || select.getKind() != ComparisonKind::Equal)
    return false;
  int x = countedDim(select.getX()), y = countedDim(select.getY());
  return x >= 0 && y >= 0 && x != y && constantOf(select.getA()) == 1 && constantOf(select.getB()) == 0;
}

/// If an operand of the einsum is an identity matrix that renames `factor`, returns the other factor; otherwise
/// `factor` itself.
static int renamed(EinsumOp einsum, const FactorRule &rule, int factor) {
  for (auto [operand, factors] : llvm::zip_equal(einsum.getInputs(), rule.operands))
    if (llvm::is_contained(factors, factor) && isIdentity(operand) && factors[0] != factors[1])
      return factors[factors[0] == factor ? 1 : 0];
  return factor;
}

/// Returns the choice for which `value` is 0 wherever the choice is 0. `value` may be the choice itself, one of its
/// products, or a softmax that does not see other entries. `tried` are einsums that were looked at before.
static std::optional<Chosen> chosenBy(Value value, llvm::DenseSet<Value> &tried) {
  if (auto choice = value.getDefiningOp<TopKOp>())
    return Chosen{choice, dimsOf(value)};
  if (auto scale = value.getDefiningOp<ScaleOp>())
    return chosenBy(scale.getX(), tried);
  if (auto softmax = value.getDefiningOp<SoftmaxOp>()) {
    std::optional<Chosen> seen = keptIn(softmax.getX(), [](double number) { return number <= -1e4; });
    return seen && seen->dims.back() + 1 == typeOf(value).getRank() ? seen : std::nullopt;
  }
  if (std::optional<Chosen> kept = keptIn(value, [](double number) { return number == 0; }))
    return kept;
  auto einsum = value.getDefiningOp<EinsumOp>();
  if (!einsum || !tried.insert(value).second)
    return std::nullopt;
  FactorRule rule = einsum.getFactorRule();
  for (auto [operand, factors] : llvm::zip_equal(einsum.getInputs(), rule.operands)) {
    std::optional<Chosen> chosen = chosenBy(operand, tried);
    if (!chosen)
      continue;
    for (int &dim : chosen->dims) {
      const int *at = llvm::find(rule.results[0], factors[dim]);
      at = at == rule.results[0].end() ? llvm::find(rule.results[0], renamed(einsum, rule, factors[dim])) : at;
      dim = static_cast<int>(at - rule.results[0].begin());
    }
    if (llvm::all_of(chosen->dims, [&](int dim) { return dim < typeOf(value).getRank(); }))
      return chosen;
  }
  return std::nullopt;
}

/// Whether the term is a value by token and expert that has other dims as well.
bool ExpertSum::isEntry(const Term &term) const {
  return term.dims.size() > mask.size() && llvm::all_of(mask, [&](int dim) { return term.has(dim); });
}

/// Whether the term is a value by expert, but not by token.
bool ExpertSum::isOfExperts(const Term &term) const {
  return term.has(mask.back()) && term.dims.size() > 1 &&
         llvm::none_of(term.dims, [&](int dim) { return isToken(dim); });
}

bool ExpertSum::match() {
  ProductForm product = contractionOf(root.getResult());
  llvm::DenseSet<Value> tried;
  for (const Term &term : product.terms) {
    std::optional<Chosen> chosen = product.summed() ? chosenBy(term.value, tried) : std::nullopt;
    if (!chosen)
      continue;
    SmallVector<int> dims = llvm::map_to_vector(chosen->dims, [&](int dim) { return term.dims[dim]; });
    if (dims.back() < product.rank ||
        llvm::any_of(ArrayRef(dims).drop_back(), [&](int d) { return d >= product.rank; }))
      continue;
    choice = chosen->choice, mask = dims;
    break;
  }
  if (!choice || static_cast<int64_t>(choice.getK()) >= typeOf(choice.getX()).getShape().back())
    return false;
  addends.push_back(product);
  for (size_t at = 0; at < addends.size(); ++at)
    while (open(at)) {
    }
  return llvm::all_of(addends, [&](const ProductForm &p) { return collectProduct(p); }) && hasWeights &&
         !entries.empty() &&
         llvm::all_of(entries, [&](auto &entry) { return isDeadAfter(entry.first.getDefiningOp()); });
}

/// Expands term number `at` of the product, which is a value by token and expert and has no other reader. If the term
/// is a product, it is replaced by its factors; if it is a sum, each addend gives a product. Of two products with
/// weights only the last one is expanded, because no dim of the result comes from the first one.
bool ExpertSum::open(size_t at) {
  for (size_t i = 0; i < addends[at].terms.size(); ++i) {
    Term term = addends[at].terms[i];
    if (!isEntry(term) || !term.value.hasOneUse())
      continue;
    bool isLast = llvm::any_of(term.dims, [&](int dim) { return dim < addends[at].rank && !isToken(dim); });
    if (auto scale = term.value.getDefiningOp<ScaleOp>()) {
      addends[at].scale *= scale.getFactor().convertToDouble();
      addends[at].terms[i].value = scale.getX();
      return true;
    }
    if (isa_and_nonnull<AddOp, SubOp>(term.value.getDefiningOp()) && isLast) {
      Operation *sum = term.value.getDefiningOp();
      addends[at].terms[i].value = sum->getOperand(0);
      addends.push_back(addends[at]);
      addends.back().terms[i].value = sum->getOperand(1);
      addends.back().scale *= isa<SubOp>(sum) ? -1 : 1;
      return true;
    }
    ProductForm opened = addends[at];
    if (openEinsum(opened, i) && (isLast || opened.dims == addends[at].dims)) {
      addends[at] = opened;
      return true;
    }
  }
  return false;
}

/// Replaces term `i` by the operands of the einsum that computes it. The dims that this einsum sums over get new
/// numbers.
bool ExpertSum::openEinsum(ProductForm &product, size_t i) {
  Term term = product.terms[i];
  auto einsum = term.value.getDefiningOp<EinsumOp>();
  if (!einsum || einsum.getRoutedAttr())
    return false;
  FactorRule rule = einsum.getFactorRule();
  SmallVector<int> places(rule.factors.size(), -1);
  for (auto [f, dim] : llvm::zip_equal(rule.results[0], term.dims))
    places[f] = dim;
  for (int &place : places)
    if (place < 0)
      place = product.dims++;
  product.terms.erase(product.terms.begin() + static_cast<int64_t>(i));
  for (auto [operand, factors] : llvm::zip_equal(einsum.getInputs(), rule.operands)) {
    Term opened{operand, llvm::map_to_vector(factors, [&](int f) { return places[f]; })};
    for (auto [d, dim] : llvm::enumerate(opened.dims))
      if (llvm::is_contained(ArrayRef(opened.dims).drop_front(d + 1), dim))
        return false; // a diagonal
    product.terms.push_back(opened);
  }
  return true;
}

/// Collects the values before one product. At most one factor may be a parameter of experts. A value must have all dims
/// of the choice's tokens or none of them.
bool ExpertSum::collectProduct(const ProductForm &product) {
  int weights = 0;
  for (const Term &term : product.terms) {
    if (isEntry(term)) {
      SmallVector<int> dims = llvm::map_to_vector(
          mask, [&](int dim) { return static_cast<int>(llvm::find(term.dims, dim) - term.dims.begin()); });
      if (!collect(term.value, dims))
        return false;
    } else if (isOfExperts(term)) {
      weights += 1;
      hasWeights |= isa_and_nonnull<ParameterOp>(straightened(term).value.getDefiningOp());
    } else if (term.has(mask.back()) && term.dims.size() > mask.size()) {
      return false;
    }
  }
  return weights <= 1;
}

/// Collects `entry` and the entries from which it is computed. `dims` are its dims along the choice. Each element must
/// depend only on entries of its own token and expert.
bool ExpertSum::collect(Value entry, ArrayRef<int> dims) {
  auto [it, isNew] = entries.insert({entry, SmallVector<int>(dims)});
  if (!isNew)
    return ArrayRef(it->second) == dims;
  Operation *op = entry.getDefiningOp();
  if (!op || op->getNumResults() != 1 || op->getBlock() != root->getBlock())
    return false;
  SmallVector<int> own(dims); // entries may move when more are inserted
  if (op->hasTrait<Pointwise>())
    return llvm::all_of(op->getOperands(), [&](Value operand) { return collect(operand, own); });
  auto einsum = dyn_cast<EinsumOp>(op);
  if (!einsum || einsum.getRoutedAttr())
    return false;
  FactorRule rule = einsum.getFactorRule();
  auto factors = llvm::map_to_vector(own, [&](int dim) { return rule.results[0][dim]; });
  for (auto [operand, of] : llvm::zip_equal(einsum.getInputs(), rule.operands)) {
    auto inner = llvm::map_to_vector(factors, [&](int f) { return static_cast<int>(llvm::find(of, f) - of.begin()); });
    auto size = static_cast<int>(of.size());
    bool hasAll = llvm::all_of(inner, [&](int dim) { return dim < size; });
    if (hasAll && of.size() > factors.size() && !collect(operand, inner))
      return false;
    hasWeights |= !hasAll && inner.back() < size &&
                  isa_and_nonnull<ParameterOp>(straightened({operand, dimsOf(operand)}).value.getDefiningOp());
  }
  return true;
}

/// Whether nothing needs `op` after the root has been replaced.
bool ExpertSum::isDeadAfter(Operation *op) {
  if (op == root)
    return true;
  auto [it, isNew] = dead.try_emplace(op, false);
  if (!isNew)
    return it->second;
  bool result = op->getBlock() == root->getBlock() && op->isBeforeInBlock(root) &&
                llvm::all_of(op->getUsers(), [&](Operation *user) { return isDeadAfter(user); });
  return dead[op] = result;
}

//===---------------------------------------------------------------------------===//
// The routed form
//===---------------------------------------------------------------------------===//

/// Returns the dims `dims`, and then the other dims below `rank`.
static SmallVector<int> inFront(ArrayRef<int> dims, int rank) {
  SmallVector<int> order(dims);
  for (int dim = 0; dim < rank; ++dim)
    if (!llvm::is_contained(dims, dim))
      order.push_back(dim);
  return order;
}

/// Returns a term with the new value of an entry, whose dims are in another order. Returns other terms unchanged.
Term ExpertSum::entryTerm(const Term &term) const {
  auto it = made.find(term.value);
  if (it == made.end())
    return term;
  SmallVector<int> order = inFront(entries.find(term.value)->second, static_cast<int>(term.dims.size()));
  return {it->second, llvm::map_to_vector(order, [&](int dim) { return term.dims[dim]; })};
}

/// Builds the product of `terms`, of which only chosen entries are needed. Values that depend neither on the token nor
/// on the expert are first copied to each expert, because routed products read lines of experts.
Value ExpertSum::routed(ArrayRef<Term> terms, ArrayRef<int> result, ArrayRef<int> choiceDims,
                        const llvm::DenseMap<int, int64_t> &sizes, double scale) {
  OpBuilder builder(root);
  auto shapeOf = [&](ArrayRef<int> dims) {
    return llvm::map_to_vector(dims, [&](int dim) { return sizes.lookup(dim); });
  };
  SmallVector<Term> all(terms);
  auto hasTokens = [&](const Term &term) {
    return llvm::any_of(choiceDims.drop_back(), [&](int dim) { return term.has(dim); });
  };
  if (llvm::none_of(all, hasTokens)) {
    auto line =
        llvm::filter_to_vector(result, [&](int dim) { return !llvm::is_contained(choiceDims.drop_back(), dim); });
    Value value = multiply(builder, root.getLoc(), all, line, 1, shapeOf(line));
    all = {Term{value, SmallVector<int>(line)}};
  }
  all.push_back({choice.getResult(), SmallVector<int>(choiceDims)});
  return multiply(builder, root.getLoc(), all, result, scale, shapeOf(result),
                  builder.getI64IntegerAttr(choice.getK()));
}

/// Adds the sizes of a term's dims.
static void addSizes(const Term &term, llvm::DenseMap<int, int64_t> &sizes) {
  for (auto [dim, size] : llvm::zip_equal(term.dims, typeOf(term.value).getShape()))
    sizes[dim] = size;
}

/// Computes the new value of an entry with the same op. Einsums become routed.
void ExpertSum::rebuild(Operation *op) {
  Value old = op->getResult(0);
  ArrayRef<int> dims = entries.find(old)->second;
  SmallVector<int> order = inFront(dims, static_cast<int>(typeOf(old).getRank()));
  auto einsum = dyn_cast<EinsumOp>(op);
  if (!einsum) {
    OpBuilder builder(root);
    auto shape = llvm::map_to_vector(order, [&](int dim) { return typeOf(old).getDimSize(dim); });
    Operation *clone = builder.clone(*op);
    for (OpOperand &operand : clone->getOpOperands())
      operand.set(made.lookup(operand.get()));
    clone->getResult(0).setType(RankedTensorType::get(shape, typeOf(old).getElementType()));
    made[old] = clone->getResult(0);
    return;
  }
  FactorRule rule = einsum.getFactorRule();
  // Dims of the result keep their numbers; summed dims get the numbers after them.
  int next = static_cast<int>(rule.results[0].size());
  SmallVector<int> places(rule.factors.size(), -1);
  for (auto [dim, f] : llvm::enumerate(rule.results[0]))
    places[f] = static_cast<int>(dim);
  for (int &place : places)
    place = place < 0 ? next++ : place;
  llvm::DenseMap<int, int64_t> sizes;
  addSizes({old, dimsOf(old)}, sizes);
  SmallVector<Term> terms;
  for (auto [operand, factors] : llvm::zip_equal(einsum.getInputs(), rule.operands)) {
    Term term{operand, llvm::map_to_vector(factors, [&](int f) { return places[f]; })};
    terms.push_back(entryTerm(term));
    nameParameter(term, dims.back(), ArrayRef(order).drop_front(dims.size()));
  }
  made[old] = routed(terms, order, dims, sizes);
}

/// Builds one product of the sum. The weights of the choice and the entries are multiplied first, then the parameter.
Value ExpertSum::build(const ProductForm &product) {
  llvm::DenseMap<int, int64_t> sizes;
  SmallVector<Term> values, weights;
  bool isRouted = false;
  for (const Term &term : product.terms) {
    Term own = entryTerm(term);
    addSizes(own, sizes);
    if (isOfExperts(own))
      weights.push_back(own);
    else if (!isMask(own))
      values.push_back(own);
    isRouted |= isEntry(own);
  }
  // A product must be routed if some factor depends on more than the mask's dims: it has a value for each chosen expert
  // of a token.
  isRouted |= !weights.empty() && llvm::any_of(values, [&](const Term &term) {
    return llvm::any_of(term.dims, [&](int dim) { return !llvm::is_contained(mask, dim); });
  });
  addSizes({choice.getResult(), mask}, sizes);
  addSizes({root.getResult(), dimsOf(root.getResult())}, sizes);
  SmallVector<int> result = dimsOf(root.getResult()), order(mask);
  OpBuilder builder(root);
  if (!isRouted) { // such as a bias of each expert
    SmallVector<Term> terms = llvm::map_to_vector(product.terms, [&](const Term &term) { return entryTerm(term); });
    for (const Term &term : weights)
      nameParameter(term, mask.back(), {});
    return multiply(builder, root.getLoc(), terms, result, product.scale, typeOf(root.getResult()).getShape());
  }
  for (int dim = 0; dim < product.dims; ++dim)
    if (!llvm::is_contained(mask, dim) && llvm::any_of(values, [&](const Term &term) { return term.has(dim); }))
      order.push_back(dim);
  for (const Term &term : weights)
    nameParameter(term, mask.back(), ArrayRef(order).drop_front(mask.size()));
  if (weights.empty())
    return routed(values, result, mask, sizes, product.scale);
  Value rows = values.size() == 1 && values[0].dims == order ? values[0].value : routed(values, order, mask, sizes);
  weights.insert(weights.begin(), Term{rows, order});
  return routed(weights, result, mask, sizes, product.scale);
}

Value ExpertSum::rewrite() {
  SmallVector<Operation *> ops;
  for (auto &[value, dims] : entries)
    ops.push_back(value.getDefiningOp());
  llvm::sort(ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  for (Operation *op : ops)
    rebuild(op);
  Value sum;
  OpBuilder builder(root);
  for (const ProductForm &product : addends) {
    Value more = build(product);
    sum = sum ? AddOp::create(builder, root.getLoc(), more.getType(), sum, more).getResult() : more;
  }
  numberChoice();
  nameRouter(choice.getX(), static_cast<int>(mask.size()) - 1);
  return sum;
}

//===---------------------------------------------------------------------------===//
// Names of dims
//===---------------------------------------------------------------------------===//

/// Names dim `dim` of a parameter, unless another dim already has this name.
static void setName(ParameterOp parameter, size_t dim, StringRef name) {
  SmallVector<StringRef> names(parameter.getDims().getAsValueRange<StringAttr>());
  if (llvm::is_contained(names, name))
    return;
  names[dim] = name;
  parameter.setDimsAttr(Builder(parameter.getContext()).getStrArrayAttr(names));
}

/// Names the dims of a parameter of experts, because tactics know such parameters by these names. `hidden` are the dims
/// inside of an expert.
void ExpertSum::nameParameter(const Term &term, int experts, ArrayRef<int> hidden) {
  Term own = straightened(term);
  auto parameter = own.value.getDefiningOp<ParameterOp>();
  if (!parameter || !own.has(experts))
    return;
  for (auto [d, dim] : llvm::enumerate(own.dims))
    if (dim == experts || llvm::is_contained(hidden, dim))
      setName(parameter, d, dim == experts ? "experts" : "expert_ffn");
}

/// Names the dim of experts in the parameters of the router, which have the same experts.
void ExpertSum::nameRouter(Value value, int dim) {
  Operation *op = value.getDefiningOp();
  if (!named.insert(value).second)
    return;
  if (auto parameter = dyn_cast_or_null<ParameterOp>(op))
    return setName(parameter, static_cast<size_t>(dim), "experts");
  if (isa_and_nonnull<SoftmaxOp>(op) || (op && op->hasTrait<Pointwise>())) {
    for (Value operand : op->getOperands())
      nameRouter(operand, dim);
    return;
  }
  auto einsum = dyn_cast_or_null<EinsumOp>(op);
  if (!einsum)
    return;
  FactorRule rule = einsum.getFactorRule();
  for (auto [operand, factors] : llvm::zip_equal(einsum.getInputs(), rule.operands))
    if (const auto *at = llvm::find(factors, rule.results[0][dim]); at != factors.end())
      nameRouter(operand, static_cast<int>(at - factors.begin()));
}

/// Numbers the choice of a layer. Runs can write and read the choices of layers that have numbers, if the choices are
/// [batch, sequence, experts]. Dims are identified by their sizes here, so the sizes of batch and sequence must differ.
void ExpertSum::numberChoice() {
  auto programs = choice->getParentOfType<ModuleOp>().getOps<ProgramOp>();
  ArrayRef<int64_t> shape = typeOf(choice.getX()).getShape();
  if (programs.empty() || choice.getLayer() || shape.size() != 3 || shape[0] == shape[1] ||
      shape[0] != static_cast<int64_t>((*programs.begin()).getBatch()) ||
      shape[1] != static_cast<int64_t>((*programs.begin()).getSequence()))
    return;
  auto choices = choice->getBlock()->getOps<TopKOp>();
  choice.setLayer(llvm::count_if(choices, [](TopKOp other) { return other.getLayer().has_value(); }));
}

Value pc::routedExperts(EinsumOp root) {
  ExpertSum sum(root);
  return sum.match() ? sum.rewrite() : Value();
}

bool pc::raiseExperts(Operation *op) {
  auto root = dyn_cast<EinsumOp>(op);
  Value raised = root && !root.getRoutedAttr() ? routedExperts(root) : Value();
  return raised && replaceResult(op, raised);
}
