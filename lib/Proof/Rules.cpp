//===- Rules.cpp - The proof's own rules of ops --------------------------------------------===//
// One line of the table describes an op. It has the letters of its operands' and results' dims. It says which letters
// must be whole, in which operands the op is linear, how partial results combine, and which letter is a global index.
// The table is independent of FactorRules.cpp, so that a mistake in either one leads to a failed proof.
//===-----------------------------------------------------------------------------===//
#include "Rules.h"

#include "pc/IR/BlockCodes.h"
#include "pc/IR/Generation.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

namespace {
/// `spec` is an einsum, or empty if attributes of the op contain it (`writtenSpec`); "x*" stands for all other dims of
/// the operand. `whole` are the letters that must not be split. `linear` are the operands in which the op is linear
/// together. `indexed` is the letter whose global index the op uses.
struct OpRow {
  StringRef name, spec, whole;
  SmallVector<unsigned, 2> linear;
  Combine combine;
  StringRef indexed;
};
} // namespace

/// Names the row of an op. Some ops have two rows: ops that may have tables of a rotation after their operands,
/// rotations (tables by position or by token), ops on a cache (with or without parts), and decoding (with scales of
/// blocks, or one scale).
static std::string nameOfRow(Operation *op) {
  auto write = dyn_cast<CacheWriteOp>(op);
  auto cached = dyn_cast<CachedAttentionOp>(op);
  if ((write && write.hasParts()) || (cached && cached.hasParts()))
    return (op->getName().stripDialect() + " parts").str();
  if (auto rope = dyn_cast<RopeOp>(op); rope && cast<RankedTensorType>(rope.getCos().getType()).getRank() == 3)
    return "rope by token";
  if (auto decode = dyn_cast<DecodeOp>(op); decode && !cast<RankedTensorType>(decode.getScales().getType()).getRank())
    return "decode scaled";
  bool rotates = (isa<SplitQkvOp>(op) && op->getNumOperands() > 1) || (isa<JoinQkvOp>(op) && op->getNumOperands() > 3);
  return (op->getName().stripDialect() + (rotates ? " rope" : "")).str();
}

/// The letters that optional operands add to the row of attention, of its gradient, or of noise for logits. `operands`
/// and `results` are letters at the end of the spec; `whole` lists the new letters that must stay whole.
struct MoreOfAttention {
  std::string operands, whole, results;
};
/// Letters of the optional operands that this attention has, for the end of the spec in its row.
static MoreOfAttention moreOf(Operation *op) {
  MoreOfAttention more;
  if (auto noise = dyn_cast<GumbelOp>(op); noise && noise.getAbove())
    more.operands = ", b m ";
  if (auto cached = dyn_cast<CachedAttentionOp>(op))
    more = {std::string(cached.getBias() ? ", k g w " : "") + (cached.getSinks() ? ", k g " : ""),
            cached.getBias() ? "w " : "", ""};
  if (!isa<AttentionOp, AttentionGradOp>(op))
    return more;
  auto add = [&](bool has, StringRef letters, StringRef stays) {
    if (has)
      more.operands += (", " + letters + " ").str(), more.whole += (stays + " ").str();
  };
  auto addAll = [&](auto attention) {
    add(attention.getBias() != nullptr, "k g r", "r");
    if constexpr (requires { attention.getSinks(); })
      add(attention.getSinks() != nullptr, "k g", "");
    add(attention.getStarts() != nullptr, "b s", "");
    add(attention.getDropAttr() != nullptr, "w", "w");
  };
  if (auto attention = dyn_cast<AttentionOp>(op))
    addAll(attention);
  else
    addAll(cast<AttentionGradOp>(op));
  if (op->getNumResults() > 3)
    more.results = ", b k g r";
  return more;
}

/// The row of `op`. A pointwise op without a row is an arbitrary function of its operands' elements, not linear in any
/// of them.
static const OpRow *rowOf(Operation *op) {
  static constexpr Combine none = Combine::None, sum = Combine::Sum;
  static const OpRow table[] = {
      {"add", "x*, x* -> x*", "", {0, 1}, sum, ""},
      {"sub", "x*, x* -> x*", "", {0, 1}, sum, ""},
      {"scale", "x* -> x*", "", {0}, sum, ""},
      {"copy", "x* -> x*", "", {0}, sum, ""},
      {"cast", "x* -> x*", "", {0}, sum, ""},
      {"activation_grad", "x*, x* -> x*", "", {0}, sum, ""},
      {"clamp_grad", "x*, x* -> x*", "", {0}, sum, ""},
      {"select", "x*, x*, x*, x* -> x*", "", {2, 3}, sum, ""},
      {"iota", " -> s", "", {}, none, "s"},
      {"softmax", "r* c -> r* c", "c", {}, none, ""},
      {"top_k", "r* c -> r* c", "c", {}, none, ""},
      {"top_groups", "r* c -> r* c", "c", {}, none, ""},
      {"admit", "b s n -> b s n", "s", {}, none, ""},
      {"columns", "", "old new", {0}, none, ""},
      {"resize", "", "old new", {0}, none, ""},
      {"reshape", "", "", {0}, none, ""},
      {"stack", "", "n", {}, none, ""},
      {"unstack", "n x* -> x*", "n", {0}, none, ""},
      {"embedding", "", "", {0}, sum, "v"},
      {"embedding_grad", "", "", {0}, sum, "v"},
      {"layer_norm", "r* e, e, e -> r* e, r*, r*", "e", {}, none, ""},
      {"layer_norm_grad", "r* e, r* e, r*, r*, e -> r* e, e, e", "e", {0}, sum, ""},
      {"rms_norm", "r* e, e -> r* e, r*", "e", {}, none, ""},
      {"rms_norm_grad", "r* e, r* e, r*, e -> r* e, e", "e", {0}, sum, ""},
      {"rope", "b s h* d, s c, s c -> b s h* d", "d c", {0}, none, ""},
      {"rope by token", "b s h* d, b s c, b s c -> b s h* d", "d c", {0}, none, ""},
      {"cache_write", "b n k t d, b s k d, b s, b s -> b n k t d", "n t s", {}, none, ""},
      {"cache_write parts", "r b n k t d, b s k d, b s, b s -> r b n k t d", "n t s", {}, none, "r"},
      {"cached_attention", "b s k g d, b n k t d, b n k t d, b s, b s -> b s k g d", "n t d", {}, none, ""},
      {"cached_attention parts",
       "b s k g d, r b n k t d, r b n k t d, b s, b s -> r b s k g d, b s k g r",
       "n t d",
       {},
       none,
       "r"},
      {"gumbel", "b m v, b m c, b m u -> b m v", "c u", {}, none, "v"},
      {"sampling_threshold", "b m v, b m c -> b m", "v c", {}, none, ""},
      {"attention", "b s k g d, b t k d, b t k d -> b s k g d, b k g s", "t d", {}, Combine::Attention, "s"},
      {"attention_grad",
       "b s k g d, b t k d, b t k d, b s k g d, b k g s, b s k g d -> b s k g d, b t k d, b t k d",
       "t d",
       {5},
       sum,
       "s"},
      {"dropout", "x*, w -> x*", "w", {0}, none, ""},
      {"split_qkv", "b s k j d -> b s k g d, b s k d, b s k d", "j g", {0}, none, ""},
      {"split_qkv rope", "b s k j d, s c, s c -> b s k g d, b s k d, b s k d", "j g d c", {0}, none, ""},
      {"join_qkv", "b s k g d, b s k d, b s k d -> b s k j d", "j g", {0, 1, 2}, none, ""},
      {"join_qkv rope", "b s k g d, b s k d, b s k d, s c, s c -> b s k j d", "j g d c", {0, 1, 2}, none, ""},
      {"packed_attention", "b s k j d -> b s k g d, b k g s", "s j g d", {}, none, ""},
      {"packed_attention_grad", "b s k j d, b s k g d, b k g s, b s k g d -> b s k j d", "s j g d", {3}, none, ""},
      {"merge_attention", "b s k g d, b k g s, b s k g d, b k g s -> b s k g d, b k g s", "", {}, none, ""},
      {"sum_exp", "r* v, r* -> r*", "", {}, sum, ""},
      {"pick", "r* v, r* -> r*", "", {0}, sum, "v"},
      {"cross_entropy_grad", "r* v, r*, r*, r*, r* -> r* v", "", {4}, none, "v"},
      {"mask_padding", "r* v -> r* v", "", {}, sum, "v"},
      {"clip_coefficient", ", h -> ", "h", {}, none, ""},
      {"adamw", "x*, x*, x*, x*, , h -> x*, x*, x*", "h", {}, none, ""},
      {"sgd", "x*, x*, , h -> x*", "h", {}, none, ""},
      {"encode", "x* -> x*, x*", "", {}, none, ""},
      {"decode", "x*, x* -> x*", "", {}, none, ""},
      {"decode scaled", "x*, -> x*", "", {}, none, ""},
      {"encode_scaled", "x*, -> x*", "", {}, none, ""},
      {"float8_scale", " -> ", "", {}, none, ""},
  };
  static const OpRow unary{"", "x* -> x*", "", {}, sum, ""}, binary{"", "x*, x* -> x*", "", {}, sum, ""};
  std::string name = nameOfRow(op);
  const auto *row = llvm::find_if(table, [&](const OpRow &row) { return row.name == name; });
  if (row != std::end(table))
    return row;
  if (!op->hasTrait<Pointwise>())
    return nullptr;
  return op->getNumOperands() == 1 ? &unary : &binary;
}

/// Letters are numbered in the order of their first use. A word such as "x*" gets one letter for each dim that is left.
bool Rule::parse(StringRef spec, ArrayRef<int64_t> ranks) {
  auto numberOf = [&](StringRef name) {
    int number = find(name);
    if (number == static_cast<int>(names.size()))
      names.push_back(name.str());
    return number;
  };
  auto parseSide = [&](StringRef side, SmallVectorImpl<Letters> &values) {
    SmallVector<StringRef> texts, words;
    side.split(texts, ',');
    for (StringRef text : texts) {
      words.clear();
      text.trim().split(words, ' ', -1, /*KeepEmpty=*/false);
      Letters &letters = values.emplace_back();
      if (ranks.empty())
        return false;
      // "x*" stands for the dims that have no other letter.
      int64_t repeated = ranks.front() - static_cast<int64_t>(words.size()) + 1;
      ranks = ranks.drop_front();
      for (StringRef word : words) {
        if (!word.ends_with("*")) {
          letters.push_back(numberOf(word));
          continue;
        }
        for (int64_t i = 0; i < repeated; ++i)
          letters.push_back(numberOf((word.drop_back() + Twine(i)).str()));
      }
    }
    return true;
  };
  auto [left, right] = spec.split("->");
  // `ranks` has one entry for each operand and result. If there are only as many as results, the op has no operands.
  bool hasOperands = ranks.size() > right.count(',') + 1;
  if ((!hasOperands || parseSide(left, operands)) && parseSide(right, results)) {
    whole.resize(names.size());
    return true;
  }
  return false;
}

static int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

/// Letters "x0 x1 .." for the dims from `first` on, up to `last`.
static std::string letters(char letter, int64_t first, int64_t last) {
  std::string text;
  for (; first < last; ++first)
    text += letter + std::to_string(first) + " ";
  return text;
}

/// In the spec of a reshape, h.w gets the letter h if the other side has h as a dim: block i of the rows is block i of
/// their elements in row-major order.
static std::string withFirstNames(StringRef spec) {
  auto [left, right] = spec.split("->");
  auto wordsOf = [](StringRef side) {
    SmallVector<StringRef> words;
    side.split(words, ' ', -1, /*KeepEmpty=*/false);
    return words;
  };
  SmallVector<StringRef> from = wordsOf(left), to = wordsOf(right);
  auto write = [](ArrayRef<StringRef> words, ArrayRef<StringRef> others) {
    std::string text;
    for (StringRef word : words) {
      StringRef first = word.split('.').first;
      text += (" " + (llvm::is_contained(others, first) ? first : word)).str();
    }
    return text;
  };
  return write(from, to) + " ->" + write(to, from);
}

/// The spec of an op whose attributes contain it.
static std::string writtenSpec(Operation *op) {
  int64_t rank = rankOf(op->getOperand(0));
  auto alongDim = [&](int64_t dim) {
    std::string front = letters('x', 0, dim), back = letters('x', dim + 1, rank);
    return front + "old " + back + "-> " + front + "new " + back;
  };
  auto lookup = [&](auto op, Value table, bool isGradient) {
    int64_t batch = op.getBatch(), ids = rankOf(op.getIds());
    std::string index = letters('b', 0, batch) + letters('i', batch, ids);
    std::string back = letters('e', batch + 1, rankOf(table));
    std::string whole = letters('b', 0, batch) + "v " + back, rows = index + back;
    return isGradient ? rows + ", " + index + "-> " + whole : whole + ", " + index + "-> " + rows;
  };
  if (isa<StackOp>(op)) {
    std::string spec = "x*";
    for (unsigned i = 1; i < op->getNumOperands(); ++i)
      spec += ", x*";
    return spec + " -> n x*";
  }
  if (auto columns = dyn_cast<ColumnsOp>(op))
    return alongDim(columns.along());
  if (auto resize = dyn_cast<ResizeOp>(op))
    return alongDim(static_cast<int64_t>(resize.getDim()));
  if (auto rows = dyn_cast<EmbeddingOp>(op))
    return lookup(rows, rows.getTable(), /*isGradient=*/false);
  if (auto rows = dyn_cast<EmbeddingGradOp>(op))
    return lookup(rows, rows.getResult(), /*isGradient=*/true);
  // A dim of a reshape is one letter, named by all that is in it: "(h w)" is h.w.
  std::string spec;
  bool isInside = false;
  for (char c : cast<ReshapeOp>(op).getSpec()) {
    isInside = c == '(' || (isInside && c != ')');
    spec += c == '(' || c == ')' ? ' ' : c == ' ' && isInside && spec.back() != ' ' ? '.' : c;
  }
  return withFirstNames(spec);
}

/// Takes the row of the table, adds the optional operands of attention, and reads properties that attributes decide.
std::optional<Rule> pc::proof::ruleOf(Operation *op) {
  Rule rule;
  SmallVector<int64_t> ranks;
  StringRef spec, along; // the index of a recurrence
  const OpRow *row = rowOf(op);
  MoreOfAttention more = moreOf(op);
  std::string own, withMore;
  if (row && row->spec.empty())
    spec = own = writtenSpec(op);
  else if (row && !more.operands.empty()) {
    auto [from, to] = row->spec.split(" ->");
    withMore = (Twine(from) + more.operands + "->" + to + more.results).str();
    spec = withMore;
  } else if (row)
    spec = row->spec;
  else if (auto einsum = dyn_cast<EinsumOp>(op))
    spec = einsum.getSpec();
  else if (auto max = dyn_cast<ReduceMaxOp>(op))
    spec = max.getSpec();
  else if (auto magnitude = dyn_cast<MaxMagnitudeOp>(op))
    spec = magnitude.getSpec();
  else if (auto recurrence = dyn_cast<RecurrenceOp>(op))
    spec = recurrence.getSpec(), along = recurrence.getAlong();
  else if (auto gradient = dyn_cast<RecurrenceGradOp>(op)) { // a, h, dh -> da, dh
    auto [dims, result] = gradient.getSpec().split("->");
    StringRef a = dims.split(",").first;
    own = (a + "," + result + "," + result + " -> " + a + "," + result).str();
    spec = own, along = gradient.getAlong();
  } else
    return std::nullopt;

  auto [left, right] = spec.split("->");
  // Operands after those of the rule are a scalar (the first index of a block) and the offsets of a drop.
  size_t operands = left.trim().empty() && (isa<IotaOp>(op) || !op->getNumOperands()) ? 0 : left.count(',') + 1;
  auto drawn = dyn_cast<DrawnOpInterface>(op);
  size_t offsets = drawn ? drawn.getOffsetsMutable().size() : 0;
  bool hasScalar = row && !row->indexed.empty() && op->getNumOperands() == operands + 1 + offsets;
  if (op->getNumOperands() != operands + hasScalar + offsets || op->getNumResults() != right.count(',') + 1)
    return std::nullopt;
  for (Value operand : op->getOperands().take_front(operands))
    ranks.push_back(rankOf(operand));
  for (Value result : op->getResults())
    ranks.push_back(rankOf(result));
  if (!rule.parse(spec, ranks))
    return std::nullopt;
  for (auto [letters, rank] : llvm::zip(llvm::concat<Rule::Letters>(rule.operands, rule.results), ranks))
    if (static_cast<int64_t>(letters.size()) != rank)
      return std::nullopt;

  // Ops that contain their own spec have no row; their properties follow from their kind.
  rule.combine = Combine::Sum;
  if (isa<EinsumOp>(op))
    rule.linear = llvm::to_vector<2>(llvm::seq<unsigned>(operands));
  if (isa<ReduceMaxOp, MaxMagnitudeOp>(op))
    rule.combine = Combine::Max;
  if (!along.empty()) {
    bool isGradient = isa<RecurrenceGradOp>(op);
    rule.linear = {isGradient ? 2u : 1u};
    rule.combine = isGradient ? Combine::Sum : Combine::None;
    rule.whole[rule.find(along)] = true;
  }
  if (!row)
    return rule;
  rule.combine = row->combine;
  rule.linear = isa<StackOp>(op) ? llvm::to_vector<2>(llvm::seq<unsigned>(operands)) : row->linear;
  SmallVector<StringRef> whole;
  row->whole.split(whole, ' ', -1, /*KeepEmpty=*/false);
  StringRef(more.whole).split(whole, ' ', -1, /*KeepEmpty=*/false);
  for (StringRef letter : whole)
    rule.whole[rule.find(letter)] = true;
  if (isa<ReshapeOp>(op)) // letters on only one side are merged or divided
    for (size_t f = 0; f < rule.names.size(); ++f)
      rule.whole[f] = !llvm::is_contained(rule.operands[0], f) || !llvm::is_contained(rule.results[0], f);
  if (!row->indexed.empty())
    rule.indexed = rule.find(row->indexed);
  if (auto mask = dyn_cast<MaskPaddingOp>(op); mask && mask.getValue().isZero())
    rule.linear = {0};
  return rule;
}

bool pc::proof::countsWhole(Operation *op) { return !isa<AttentionOp, AttentionGradOp>(op); }
