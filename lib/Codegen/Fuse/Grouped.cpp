//===- Grouped.cpp - Routed einsums that work on rows ---------------------------------------===//
// Input: a routed einsum, and a function that tells which values are stored by rows. Result: the table entry
// (pcrt_gemm_desc) of a grouped product, a pack, an unpack or a sum, or std::nullopt if the op is none of these. Rows
// are sorted by expert, so that the rows of an expert are one matrix.
//===-----------------------------------------------------------------------------===//
#include "Grouped.h"
#include "Gemm.h"
#include "pc/Cost/CudaWorkspace.h"
#include "pc/IR/Codes.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace pc;

namespace {
/// The correspondence of a value's dims to the mask [tokens, experts], and the value's other dims.
struct Lie {
  int32_t how = -1; ///< a value of pcrt_lies; -1: the dims correspond in another way
  ArrayRef<int> dims;
  SmallVector<int> rest;
};

/// Strides by factor of a row-major tensor; 0 for factors that it lacks.
SmallVector<int64_t> stridesOf(const FactorRule &rule, ArrayRef<int> dims) {
  SmallVector<int64_t> strides(rule.factors.size());
  int64_t stride = 1;
  for (int f : llvm::reverse(dims)) {
    strides[f] = stride;
    stride *= rule.factors[f].size;
  }
  return strides;
}
} // namespace

/// The form of a tensor with dims `dims`, relative to the mask's tokens and experts; `how` is -1 for any other form.
static Lie lieOf(ArrayRef<int> dims, ArrayRef<int> mask, bool byRows) {
  auto has = [&](int f) { return llvm::is_contained(dims, f); };
  ArrayRef<int> tokens = mask.drop_back();
  Lie lie{-1, dims, {}};
  size_t known = 0;
  for (auto [d, f] : llvm::enumerate(dims))
    if (llvm::is_contained(dims.drop_front(d + 1), f))
      return lie; // a diagonal
  if (dims.take_front(mask.size()) == mask) {
    known = mask.size();
    lie.how = byRows ? PCRT_LIES_ROWS : dims.size() == known ? PCRT_LIES_ENTRIES : -1;
  } else if (has(mask.back())) {
    lie.how = llvm::none_of(tokens, has) ? PCRT_LIES_EXPERTS : -1;
  } else if (dims.size() >= tokens.size() && dims.take_front(tokens.size()) == tokens) {
    known = tokens.size();
    lie.how = PCRT_LIES_TOKENS;
  }
  llvm::copy_if(dims.drop_front(known), std::back_inserter(lie.rest), [&](int f) { return f != mask.back(); });
  return lie;
}

/// The mask's dims must be those of the routed rows, and the other factors those of one matrix product per expert.
std::optional<Grouped> pc::asGrouped(EinsumOp op, llvm::function_ref<bool(Value)> byRows) {
  auto elementOf = [](Value v) { return cast<RankedTensorType>(v.getType()).getElementType(); };
  if (!op.getMask() || !elementOf(op.getMask()).isF32() || byRows(op.getMask()))
    return std::nullopt;
  // Operands must have one type, except a matrix of codes, which is read as f32. A result of bf16 operands may be f32.
  Type element = elementOf(op.getInputs()[decodingOf(op.getInputs()[0]) ? 1 : 0]), made = elementOf(op.getResult());
  auto isFloat = [](Type type) { return type.isF32() || type.isBF16(); };
  if (!isFloat(element) || !isFloat(made) ||
      !llvm::all_of(op.getInputs().drop_back(), [&](Value v) { return elementOf(v) == element || decodingOf(v); }))
    return std::nullopt;
  FactorRule rule = op.getFactorRule();
  SmallVector<int> mask(ArrayRef<int>(rule.operands.pop_back_val()));
  SmallVector<Lie, 2> in;
  for (auto [dims, value] : llvm::zip(rule.operands, op.getInputs()))
    in.push_back(lieOf(dims, mask, byRows(value)));
  Lie out = lieOf(rule.results[0], mask, byRows(op.getResult()));
  auto size = [&](int f) { return rule.factors[f].size; };
  Grouped g;
  pcrt_gemm_desc &d = g.desc;
  d.experts = d.batch = size(mask.back());
  d.tokens = 1;
  for (int f : ArrayRef(mask).drop_back())
    d.tokens *= size(f);
  d.rows = mostRows(op);
  d.c_lies = out.how;
  auto isOfToken = [](const Lie &lie) { return lie.how == PCRT_LIES_ROWS || lie.how == PCRT_LIES_TOKENS; };

  // The einsum copies one line per expert to the expert's rows, or sums these rows to one line.
  bool spreads = in.size() == 1 && in[0].how == PCRT_LIES_EXPERTS && out.how == PCRT_LIES_ROWS,
       sumsLines = in.size() == 1 && in[0].how == PCRT_LIES_ROWS && out.how == PCRT_LIES_EXPERTS;
  if (spreads || sumsLines) {
    const Lie &line = spreads ? in[0] : out;
    if (in[0].rest.size() != 1 || in[0].rest != out.rest || line.dims != ArrayRef<int>({mask.back(), in[0].rest[0]}))
      return std::nullopt;
    d.grouped = spreads ? PCRT_GROUPED_SPREAD : PCRT_GROUPED_SUM;
    d.a_lies = d.b_lies = in[0].how;
    d.m = d.rows, d.n = size(in[0].rest[0]), d.k = 1;
    d.a_m_stride = d.c_m_stride = d.n;
    d.a_k_stride = d.b_k_stride = d.b_n_stride = d.c_n_stride = 1;
    return g;
  }
  if (!made.isF32() && made != element)
    return std::nullopt;
  if (in.size() == 1) { // a number per token and expert, copied to rows or back
    // The einsum copies the values of a token to each of its rows, or adds its rows up.
    bool gathers = in[0].how == PCRT_LIES_TOKENS && out.how == PCRT_LIES_ROWS;
    bool adds = in[0].how == PCRT_LIES_ROWS && out.how == PCRT_LIES_TOKENS;
    bool packs = in[0].how == PCRT_LIES_ENTRIES && out.how == PCRT_LIES_ROWS;
    bool unpacks = in[0].how == PCRT_LIES_ROWS && out.how == PCRT_LIES_ENTRIES;
    if (!(packs || unpacks || gathers || adds) || in[0].rest.size() != (gathers || adds) || out.rest != in[0].rest)
      return std::nullopt;
    d.grouped = packs || gathers ? PCRT_GROUPED_PACK : PCRT_GROUPED_UNPACK;
    d.a_lies = d.b_lies = in[0].how;
    d.m = d.rows, d.n = out.rest.empty() ? 1 : size(out.rest[0]), d.k = 1;
    d.a_m_stride = d.a_k_stride = d.b_k_stride = d.b_n_stride = d.c_n_stride = 1, d.c_m_stride = d.n;
    return g;
  }
  auto hasDims = [](const Lie &lie) { return lie.rest.size() == (lie.how == PCRT_LIES_EXPERTS ? 2 : 1); };
  if (in.size() != 2 || !llvm::all_of(in, hasDims))
    return std::nullopt;
  bool sumsTokens = out.how == PCRT_LIES_EXPERTS;
  // a is the operand with m, which has the tokens. If tokens are summed, it is the operand without the last dim of the
  // result.
  if (sumsTokens) {
    if (out.rest.size() != 2 || !isOfToken(in[0]) || !isOfToken(in[1]) || out.dims.back() == mask.back())
      return std::nullopt;
    g.b = in[1].rest[0] == out.dims.back() ? 1 : 0;
    g.a = 1 - g.b;
    int m = in[g.a].rest[0], n = in[g.b].rest[0];
    if (m == n || n != out.dims.back() || !llvm::is_contained(out.rest, m))
      return std::nullopt;
    SmallVector<int64_t> c = stridesOf(rule, out.dims);
    d.grouped = PCRT_GROUPED_GRADIENT;
    d.m = size(m), d.n = size(n), d.k = d.rows;
    d.a_m_stride = 1, d.a_k_stride = d.m;
    d.b_n_stride = 1, d.b_k_stride = d.n;
    d.c_batch_stride = c[mask.back()], d.c_m_stride = c[m], d.c_n_stride = 1;
  } else {
    g.b = in[1].how == PCRT_LIES_EXPERTS ? 1 : 0;
    g.a = 1 - g.b;
    if (in[g.b].how != PCRT_LIES_EXPERTS || !isOfToken(in[g.a]) || !isOfToken(out) || out.rest.size() != 1)
      return std::nullopt;
    int k = in[g.a].rest[0], n = out.rest[0];
    ArrayRef<int> both = in[g.b].rest;
    if (k == n || both.size() != 2 || !llvm::is_contained(both, k) || !llvm::is_contained(both, n))
      return std::nullopt;
    SmallVector<int64_t> b = stridesOf(rule, in[g.b].dims);
    if (b[k] != 1 && b[n] != 1)
      return std::nullopt;
    d.grouped = PCRT_GROUPED_PRODUCT;
    d.m = d.rows, d.n = size(n), d.k = size(k);
    d.a_m_stride = d.k, d.a_k_stride = 1;
    d.b_batch_stride = b[mask.back()], d.b_k_stride = b[k], d.b_n_stride = b[n];
    d.c_m_stride = d.n, d.c_n_stride = 1;
  }
  d.a_lies = in[g.a].how, d.b_lies = in[g.b].how;
  return g;
}

std::optional<Grouped> pc::asGrouped(EinsumOp op) {
  return asGrouped(op, [](Value v) { return rowsOf(v) != nullptr; });
}

EinsumOp pc::routedOnRows(Operation *op) {
  if (!isOnRows(op))
    return {};
  auto fusion = dyn_cast<FusionOp>(op);
  return cast<EinsumOp>(fusion ? fusion.getBody().front().getTerminator()->getPrevNode() : op);
}

/// The ops that compute the matrices come first.
std::optional<CodedExperts> pc::asCodedExperts(FusionOp fusion) {
  Block &body = fusion.getBody().front();
  auto product = dyn_cast<EinsumOp>(body.getTerminator()->getPrevNode());
  SmallVector<Operation *> decoding = product && product.getMask() ? decodingOps(product) : SmallVector<Operation *>();
  if (decoding.empty() || decoding.size() + 2 != body.getOperations().size() || fusion.getNumResults() != 1)
    return std::nullopt;
  auto outside = [&](Value value) { return fusion.getInputs()[cast<BlockArgument>(value).getArgNumber()]; };
  auto elements = [](Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); };
  Grouped grouped = *asGrouped(product);
  Value codes = decoding[0]->getOperand(0), scales = decoding[0]->getOperand(1);
  grouped.desc.group = elements(codes) / elements(scales);
  return CodedExperts{product,
                      grouped.desc,
                      outside(product.getInputs()[grouped.a]),
                      outside(codes),
                      outside(scales),
                      outside(product.getMask()),
                      fusion.getResult(0)};
}

/// The type of the data in the buffer of a value of `type`.
static Type formOf(Type type) {
  auto home = dyn_cast_or_null<HomeAttr>(cast<RankedTensorType>(type).getEncoding());
  RankedTensorType stored = storedType(type);
  return home ? withEncoding(stored, HomeAttr::get(type.getContext(), home.getOffset())) : stored;
}

/// "b s n f, b s n -> b s n f", of rows: "rows f, rows -> rows f".
static std::string specOfRows(EinsumOp op) {
  FactorRule rule = op.getFactorRule();
  auto textOf = [&](ArrayRef<int> dims, Value value) {
    SmallVector<std::string> words;
    if (RowsAttr rows = rowsOf(value)) {
      words.push_back("rows");
      dims = dims.drop_front(rows.getDims());
    }
    for (int f : dims)
      words.push_back(rule.factors[f].name);
    return llvm::join(words, " ");
  };
  SmallVector<std::string> operands;
  for (auto [dims, value] : llvm::zip_equal(rule.operands, op.getInputs()))
    operands.push_back(textOf(dims, value));
  return llvm::join(operands, ", ") + " -> " + textOf(rule.results[0], op.getResult());
}

/// Builds the op with rows instead of tokens and experts, as the only op of a function, so that it is emitted like any
/// other op.
RowForm pc::rowForm(Operation *op) {
  MLIRContext *context = op->getContext();
  // A value that is read twice becomes one argument.
  SmallVector<Value> operands;
  SmallVector<Type> types;
  for (Value operand : op->getOperands())
    if (!llvm::is_contained(operands, operand)) {
      operands.push_back(operand);
      types.push_back(formOf(operand.getType()));
    }
  OpBuilder builder(context);
  RowForm form;
  form.holder = func::FuncOp::create(builder, op->getLoc(), "rows", builder.getFunctionType(types, {}));
  Block *entry = form.holder->addEntryBlock();
  builder.setInsertionPointToStart(entry);
  IRMapping mapping;
  mapping.map(operands, entry->getArguments());
  form.op = builder.clone(*op, mapping);
  // Specs must match the types of the op.
  SmallVector<EinsumOp> before, after;
  op->walk([&](EinsumOp einsum) { before.push_back(einsum); });
  form.op->walk([&](EinsumOp einsum) { after.push_back(einsum); });
  for (auto [old, einsum] : llvm::zip_equal(before, after))
    if (hasRows(old))
      einsum.setSpec(specOfRows(old));
  form.op->walk([&](Operation *inner) {
    for (Value result : inner->getResults())
      result.setType(formOf(result.getType()));
    for (Region &region : inner->getRegions())
      for (BlockArgument argument : region.getArguments())
        argument.setType(formOf(argument.getType()));
  });
  return form;
}
