//===- execute-test.cpp - Compiled programs against the interpreter -------===//
//   usage: execute-test            every row op, einsum and fusion in odd sizes, with and without pc-fuse
//                                  and with as many values in bf16 as the ops allow
//          execute-test FILE...    programs of phase local, on one rank
//          execute-test --random N M  random graphs of seeds N to M
//===----------------------------------------------------------------------===//
#include "Programs.h"
#include "pc/Driver/Registration.h"

#include "llvm/Support/raw_ostream.h"
#include <map>
#include <random>
#include <set>

using namespace mlir;

namespace {

/// "pc.op a, b" of pointwise ops on x, y of one shape, and a chain of them.
void pointwise(MLIRContext &context, const std::vector<int64_t> &shape) {
  std::string t = type(shape), tt = " : (" + t + ", " + t + ") -> " + t, u = " : (" + t + ") -> " + t;
  Program p;
  std::string x = p.parameter(shape), y = p.parameter(shape), z = p.parameter(shape, 3);
  p.op("%a = pc.add " + x + ", " + y + tt);
  p.op("%b = pc.sub " + x + ", " + z + tt);
  p.op("%c = pc.scale " + y + " by 2.5" + u);
  p.op("%d = pc.copy " + x + u);
  p.op("%e = pc.exp %a" + u);
  p.op("%f = pc.log " + z + u);
  p.op("%g = pc.recip " + z + u);
  p.op("%h = pc.sqrt " + z + u);
  p.op("%i = pc.add %h, %g" + tt);
  p.op("%wide = pc.scale " + x + " by 300.0" + u); // far tails
  int n = 0;
  for (const char *kind : {"gelu_tanh", "gelu", "silu", "relu", "tanh", "sigmoid"})
    for (const char *in : {"%a", "%wide"}) {
      std::string k = std::to_string(n++);
      p.op("%f" + k + " = pc.activation " + kind + " " + in + u);
      p.op("%g" + k + " = pc.activation_grad " + kind + " " + y + ", " + in + tt);
      p.output("%f" + k, shape);
      p.output("%g" + k, shape);
    }
  p.op("%clamped = pc.clamp %a from -0.5 to 0.75" + u);
  p.op("%above = pc.clamp %wide to 0.25" + u);
  p.op("%kept = pc.clamp_grad %a, %b from -0.5 to 0.75" + tt);
  p.op("%angle = pc.scale " + x + " by 256.0" + u); // exact, so that large angles are the interpreter's
  p.op("%sine = pc.sin %angle" + u);
  p.op("%cosine = pc.cos %angle" + u);
  const std::string four = " : (" + t + ", " + t + ", " + t + ", " + t + ") -> " + t;
  p.op("%less = pc.select less %a, %b, %c, " + y + four);
  p.op("%at_most = pc.select less_equal " + x + ", " + x + ", " + y + ", %wide" + four);
  p.op("%same = pc.select equal %a, %b, %c, " + y + four);
  for (const char *value : {"%clamped", "%above", "%kept", "%sine", "%cosine", "%less", "%at_most", "%same"})
    p.output(value, shape);
  p.op(shape.empty() ? "%m = pc.copy %a" + u : "%m = pc.mask_padding %a valid 2 value -1.5" + u);
  for (const char *value : {"%a", "%b", "%c", "%d", "%e", "%f", "%g", "%h", "%i", "%m"})
    p.output(value, shape);
  check(context, "pointwise " + t, p.text(), false);
}

void norms(MLIRContext &context, std::vector<int64_t> rows, int64_t columns) {
  std::vector<int64_t> shape = rows, bias = {columns};
  shape.push_back(columns);
  std::string t = type(shape), c = type(bias), r = type(rows);
  std::string letters;
  for (size_t i = 0; i < rows.size(); ++i)
    letters += "r" + std::to_string(i) + " ";
  Program p;
  std::string x = p.parameter(shape), y = p.parameter(shape), b = p.parameter(bias), gamma = p.parameter(bias, 1),
              beta = p.parameter(bias);
  p.op("%wide = pc.einsum \"e -> " + letters + "e\" " + b + " : (" + c + ") -> " + t);
  p.op("%h = pc.add " + x + ", %wide : (" + t + ", " + t + ") -> " + t);
  p.op("%s = pc.add " + y + ", %h : (" + t + ", " + t + ") -> " + t);
  p.op("%n, %mean, %rstd = pc.layer_norm %s, " + gamma + ", " + beta + " eps 1.0e-5 : (" + t + ", " + c + ", " + c +
       ") -> (" + t + ", " + r + ", " + r + ")");
  p.op("%q, %rrms = pc.rms_norm %s, " + gamma + " eps 1.0e-5 : (" + t + ", " + c + ") -> (" + t + ", " + r + ")");
  p.op("%act = pc.activation silu %q : (" + t + ") -> " + t);
  p.op("%sum = pc.einsum \"" + letters + "e -> e\" %act : (" + t + ") -> " + c);
  p.op("%prod = pc.einsum \"" + letters + "e, " + letters + "e -> " + letters + "\" %act, " + x + " : (" + t + ", " +
       t + ") -> " + r);
  p.op("%sq = pc.einsum \"" + letters + "e, " + letters + "e -> \" %n, %n : (" + t + ", " + t + ") -> tensor<f32>");
  p.op("%root = pc.sqrt %sq : (tensor<f32>) -> tensor<f32>");
  for (const char *value : {"%s", "%n", "%q", "%act"})
    p.output(value, shape);
  for (const char *value : {"%mean", "%rstd", "%rrms", "%prod"})
    p.output(value, rows);
  p.output("%sum", bias);
  p.output("%root", {});
  check(context, "norms " + t, p.text(), false);
}

void loss(MLIRContext &context, std::vector<int64_t> rows, int64_t columns) {
  std::vector<int64_t> shape = rows;
  shape.push_back(columns);
  std::string t = type(shape), r = type(rows), i = type(rows, "i32"), letters;
  for (size_t d = 0; d < rows.size(); ++d)
    letters += "r" + std::to_string(d) + " ";
  Program p;
  std::string x = p.parameter(shape), targets = p.targets(rows);
  p.op("%l = pc.mask_padding " + x + " valid " + std::to_string(columns) + " value -1.0e30 : (" + t + ") -> " + t);
  p.op("%max = pc.reduce_max \"" + letters + "v -> " + letters + "\" %l : (" + t + ") -> " + r);
  p.op("%se = pc.sum_exp %l, %max : (" + t + ", " + r + ") -> " + r);
  p.op("%pick = pc.pick %l, " + targets + " : (" + t + ", " + i + ") -> " + r);
  p.op("%log = pc.log %se : (" + r + ") -> " + r);
  p.op("%add = pc.add %log, %max : (" + r + ", " + r + ") -> " + r);
  p.op("%nll = pc.sub %add, %pick : (" + r + ", " + r + ") -> " + r);
  p.op("%total = pc.einsum \"" + letters + "-> \" %nll : (" + r + ") -> tensor<f32>");
  p.op("%loss = pc.scale %total by 0.125 : (tensor<f32>) -> tensor<f32>");
  p.op("%seed = pc.seed : tensor<f32>");
  p.op("%d0 = pc.scale %seed by 0.125 : (tensor<f32>) -> tensor<f32>");
  p.op("%d1 = pc.einsum \" -> " + letters + "\" %d0 : (tensor<f32>) -> " + r);
  p.op("%grad = pc.cross_entropy_grad %l, %max, %se, " + targets + ", %d1 : (" + t + ", " + r + ", " + r + ", " + i +
       ", " + r + ") -> " + t);
  p.output("%nll", rows);
  p.output("%loss", {});
  p.output("%grad", shape);
  check(context, "loss " + t, p.text(columns), false);
}

/// Tests what a router computes from logits, some of which are equal. Rows have `columns` entries, of which 1, some and
/// all are chosen.
void routing(MLIRContext &context, const std::vector<int64_t> &rows, int64_t columns) {
  std::vector<int64_t> shape = rows;
  shape.push_back(columns);
  std::string t = type(shape), r = type(rows), letters;
  for (size_t d = 0; d < rows.size(); ++d)
    letters += "r" + std::to_string(d) + " ";
  Program p;
  std::string x = p.parameter(shape), y = p.parameter(rows);
  p.op("%same = pc.einsum \"" + letters + "-> " + letters + "c\" " + y + " : (" + r + ") -> " + t);
  p.op("%s = pc.softmax " + x + " : (" + t + ") -> " + t);
  p.output("%s", shape);
  for (int64_t k : std::set<int64_t>{1, (columns + 1) / 2, columns})
    for (const auto &[from, name] :
         {std::pair(x, "x"), std::pair(std::string("%same"), "same"), std::pair(std::string("%s"), "s")}) {
      std::string chosen = std::string("%") + name + "_" + std::to_string(k);
      p.op(chosen + " = pc.top_k " + from + " k " + std::to_string(k) + " : (" + t + ") -> " + t);
      p.op(chosen + "w = pc.einsum \"" + letters + "c, " + letters + "c -> " + letters + "c\" %s, " + chosen + " : (" +
           t + ", " + t + ") -> " + t);
      p.output(chosen, shape);
      p.output(chosen + "w", shape);
      const int64_t most = llvm::product_of(rows) * k; // rows, in rounds of one, of some and of all
      for (int64_t limit : std::set<int64_t>{1, (most + 2) / 3, most})
        for (int64_t rounds = std::min<int64_t>(llvm::divideCeil(most, limit), 4), round = 0; round < rounds; ++round) {
          std::string part = chosen + "_" + std::to_string(limit) + "of" + std::to_string(round);
          p.op(part + " = pc.round_of_rows " + chosen + " round " + std::to_string(round) + " of " +
               std::to_string(rounds) + " limit " + std::to_string(limit) + " : (" + t + ") -> " + t);
          p.output(part, shape);
        }
      for (int64_t capacity : std::set<int64_t>{1, (rows.back() + 1) / 2, rows.back() + 1})
        if (rows.size() == 2) {
          std::string taken = chosen + "_" + std::to_string(capacity);
          p.op(taken + " = pc.admit " + chosen + " capacity " + std::to_string(capacity) + " : (" + t + ") -> " + t);
          p.output(taken, shape);
        }
    }
  for (int64_t groups : {1, 2, 4})
    if (columns % groups == 0 && columns / groups > 1)
      for (int64_t keep = 1; keep <= groups; ++keep)
        for (const auto &[from, name] : {std::pair(x, "x"), std::pair(std::string("%same"), "same")}) {
          std::string kept = "%g" + std::to_string(groups) + "_" + std::to_string(keep) + name;
          p.op(kept + " = pc.top_groups " + from + " groups " + std::to_string(groups) + " keep " +
               std::to_string(keep) + " : (" + t + ") -> " + t);
          p.output(kept, shape);
        }
  check(context, "routing " + t, p.text(), false);
}

/// Tests heads that one product packs: they are split and joined, with and without rotation, and read by attention.
void packedHeads(MLIRContext &context, int64_t s, int64_t k, int64_t g, int64_t d) {
  std::vector<int64_t> packed = {2, s, k, g + 2, d}, query = {2, s, k, g, d}, key = {2, s, k, d}, sum = {2, k, g, s};
  std::string x = type(packed), q = type(query), kv = type(key), lse = type(sum);
  Program p;
  std::string in = p.parameter(packed), dout = p.parameter(query);
  auto both = [&](const std::string &suffix, const std::string &rope, const std::string &types) {
    p.op("%q" + suffix + ", %k" + suffix + ", %v" + suffix + " = pc.split_qkv " + in + rope + " : (" + x + types +
         ") -> (" + q + ", " + kv + ", " + kv + ")");
    p.op("%x" + suffix + " = pc.join_qkv %q" + suffix + ", " + "%k" + suffix + ", %v" + suffix + rope + " : (" + q +
         ", " + kv + ", " + kv + types + ") -> " + x);
    p.output("%q" + suffix, query);
    p.output("%k" + suffix, key);
    p.output("%v" + suffix, key);
    p.output("%x" + suffix, packed);
  };
  both("", "", "");
  if (d % 2 == 0) {
    std::string table = type({s, d / 2}), cos = p.parameter({s, d / 2}), sin = p.parameter({s, d / 2});
    both("r", " rope " + cos + ", " + sin, ", " + table + ", " + table);
  }
  for (std::string causal : {"", "causal "}) {
    std::string n = causal.empty() ? "a" : "c";
    p.op("%o" + n + ", %l" + n + " = pc.packed_attention " + causal + in + " scale 0.3 : (" + x + ") -> (" + q + ", " +
         lse + ")");
    p.op("%g" + n + " = pc.packed_attention_grad " + causal + in + ", %o" + n + ", %l" + n + ", " + dout +
         " scale 0.3 : (" + x + ", " + q + ", " + lse + ", " + q + ") -> " + x);
    p.output("%o" + n, query);
    p.output("%l" + n, sum);
    p.output("%g" + n, packed);
  }
  check(context, "packed heads " + x, p.text(), false);
}

/// Tests dropout alone, and between a sum and a norm of one kernel. Also tests it on a block of a value that is `more`
/// columns wider.
void dropout(MLIRContext &context, const std::vector<int64_t> &shape, int64_t more = 0) {
  std::string t = type(shape), u = type({shape.back()}), offset = more ? ", tensor<i32>" : "",
              at = more ? " at %at" : "";
  std::vector<int64_t> whole = shape, rows(shape.begin(), shape.end() - 1);
  whole.back() += more;
  std::string drop = " drop <19661, global = [" + join(whole, ", ") + "]" +
                     (more ? ", split = [" + std::to_string(shape.size() - 1) + "]" : "") + ">";
  Program p;
  std::string x = p.parameter(shape), y = p.parameter(shape), gamma = p.parameter({shape.back()}, 1),
              words = p.words(2);
  if (more)
    p.op("%at = pc.block_offset on [\"dp\"] block " + std::to_string(shape.back()) + " : tensor<i32>");
  auto drops = [&](const std::string &result, const std::string &value) {
    p.op(result + " = pc.dropout " + value + " random " + words + at + drop + " : (" + t + ", tensor<5xi32>" + offset +
         ") -> " + t);
  };
  drops("%a", x);
  p.op("%b = pc.add " + x + ", " + y + " : (" + t + ", " + t + ") -> " + t);
  drops("%c", "%b");
  p.op("%d = pc.add %c, " + x + " : (" + t + ", " + t + ") -> " + t);
  p.op("%n, %rstd = pc.rms_norm %d, " + gamma + " eps 1.0e-6 : (" + t + ", " + u + ") -> (" + t + ", " + type(rows) +
       ")");
  for (const char *value : {"%a", "%d", "%n"})
    p.output(value, shape);
  check(context, "dropout " + t, p.text(), false);
}

/// The options of attention, apart from q, k and v.
struct Scores {
  bool drops = false, biased = false, capped = false, sunk = false;
  int64_t window = 0;      ///< of causal attention
  bool documented = false; ///< likewise
};

/// Tests attention with the options above, and its gradient.
void attention(MLIRContext &context, int64_t s, int64_t t, int64_t k, int64_t g, int64_t d, Scores scores) {
  std::vector<int64_t> query = {2, s, k, g, d}, key = {2, t, k, d}, sum = {2, k, g, s}, addends = {k, g, s + t - 1},
                       byRow = {2, k, g, s + t - 1};
  std::string q = type(query), kv = type(key), lse = type(sum);
  Program p;
  std::string inQ = p.parameter(query), inK = p.parameter(key), inV = p.parameter(key), dout = p.parameter(query);
  std::string more, types;
  if (scores.biased)
    more = " bias " + p.parameter(addends), types = ", " + type(addends);
  std::string without = more, typesWithout = types; // of the gradient
  if (scores.sunk)
    more += " sinks " + p.parameter({k, g}), types += ", " + type({k, g});
  auto both = [&](const std::string &words, const std::string &type) {
    more += words, without += words, types += type, typesWithout += type;
  };
  if (scores.documented)
    both(" starts " + p.starts(query[0], s), ", " + type({query[0], s}, "i32"));
  if (scores.drops)
    both(" random " + p.words(1), ", tensor<5xi32>");
  for (std::string causal : {"", "causal "}) {
    if (causal.empty() && (scores.window || scores.documented))
      continue;
    std::string n = causal.empty() ? "a" : "c", how = " scale 0.3";
    how += scores.window ? " window " + std::to_string(scores.window) : "";
    how += scores.capped ? " softcap 0.75" : "";
    how += scores.drops ? " drop <19661>" : "";
    p.op("%o" + n + ", %l" + n + " = pc.attention " + causal + inQ + ", " + inK + ", " + inV + more + how + " : (" + q +
         ", " + kv + ", " + kv + types + ") -> (" + q + ", " + lse + ")");
    p.op("%g" + n + (scores.biased ? ":4" : ":3") + " = pc.attention_grad " + causal + inQ + ", " + inK + ", " + inV +
         ", %o" + n + ", %l" + n + ", " + dout + without + how + " : (" + q + ", " + kv + ", " + kv + ", " + q + ", " +
         lse + ", " + q + typesWithout + ") -> (" + q + ", " + kv + ", " + kv +
         (scores.biased ? ", " + type(byRow) : "") + ")");
    if (scores.biased)
      p.output("%g" + n + "#3", byRow);
    p.output("%o" + n, query);
    p.output("%l" + n, sum);
    p.output("%g" + n + "#0", query);
    p.output("%g" + n + "#1", key);
    p.output("%g" + n + "#2", key);
  }
  std::string name = scores.drops ? " drops" : "";
  name += scores.biased ? " biased" : "";
  name += scores.sunk ? " sunk" : "";
  name += scores.capped ? " capped" : "";
  name += scores.documented ? " of documents" : "";
  name += scores.window ? " window " + std::to_string(scores.window) : "";
  check(context, "attention" + name + " " + q, p.text(), false);
}

/// Tests rotations, and their inverse, of a part of a head that begins at `first`. The rotated pairs are the two
/// halves, or adjacent elements.
void rope(MLIRContext &context, int64_t d, int64_t rotated, int64_t first = 0) {
  std::vector<int64_t> shape = {2, 5, 3, d}, table = {5, rotated / 2};
  std::string t = type(shape), u = type(table);
  Program p;
  std::string x = p.parameter(shape), cos = p.parameter(table), sin = p.parameter(table);
  int n = 0;
  for (std::string how : {"", "inverse ", "interleaved ", "inverse interleaved "}) {
    if (d % 2 && llvm::StringRef(how).contains("interleaved"))
      continue;
    std::string y = "%y" + std::to_string(n++);
    p.op(y + " = pc.rope " + how + x + ", " + cos + ", " + sin + " first " + std::to_string(first) + " : (" + t + ", " +
         u + ", " + u + ") -> " + t);
    p.output(y, shape);
  }
  check(context, "rope of " + std::to_string(rotated) + " of " + t, p.text(), false);
}

/// Tests one einsum. Its shapes follow from the sizes of its factors.
void einsum(MLIRContext &context, const std::string &spec, const std::map<char, int64_t> &sizes) {
  auto shapeOf = [&](llvm::StringRef dims) {
    std::vector<int64_t> shape;
    for (char c : dims)
      if (c != ' ')
        shape.push_back(sizes.at(c));
    return shape;
  };
  auto [left, right] = llvm::StringRef(spec).split("->");
  llvm::SmallVector<llvm::StringRef> operands;
  left.split(operands, ',');
  Program p;
  std::string names, types;
  for (llvm::StringRef operand : operands) {
    std::vector<int64_t> shape = shapeOf(operand);
    names += (names.empty() ? "" : ", ") + p.parameter(shape);
    types += (types.empty() ? "" : ", ") + type(shape);
  }
  std::vector<int64_t> result = shapeOf(right);
  p.op("%r = pc.einsum \"" + spec + "\" " + names + " : (" + types + ") -> " + type(result));
  p.op("%s = pc.scale %r by 0.5 : (" + type(result) + ") -> " + type(result));
  p.output("%r", result);
  p.output("%s", result);
  check(context, "einsum " + spec, p.text(), false);
}

/// Tests a random graph of row ops on tensors of a few shapes, with outputs, matrix products and updates between them.
/// It shows whether fusion moves an op where it may not.
void randomGraph(MLIRContext &context, unsigned seed) {
  std::mt19937 random(seed);
  auto upTo = [&](int n) { return int(random() % n); };
  int64_t a = 1 + upTo(5), b = 1 + upTo(20), c = 1 + upTo(40);
  if (upTo(3) == 0) // dims must not be told apart by their sizes
    a = b = c = 2 + upTo(20);
  const std::vector<std::vector<int64_t>> shapes = {{a, b, c}, {a, b}, {c}, {}, {b, c}};
  const char *const dims[] = {"a b c", "a b", "c", "", "b c"};
  std::vector<std::string> values[5];
  Program p;
  int counter = 0;
  std::string targets = p.targets({a, b});
  for (int s = 0; s < 5; ++s)
    for (int i = 0; i < 2; ++i)
      values[s].push_back(p.parameter(shapes[s], i ? 1.5 : 0));
  auto pick = [&](int s) { return values[s][upTo(values[s].size())]; };
  auto define = [&](int s, const std::string &text) {
    std::string name = "%v" + std::to_string(counter++);
    p.op(name + " = pc." + text);
    // Values are bounded, so that chains of products do not overflow.
    std::string t = type(shapes[s]), small = "%v" + std::to_string(counter++);
    p.op(small + " = pc.scale " + name + " by 0.5 : (" + t + ") -> " + t);
    values[s].push_back(small);
  };
  for (int i = 0, n = 10 + upTo(25); i < n; ++i) {
    int s = upTo(5), to = upTo(5);
    std::string t = type(shapes[s]), u = type(shapes[to]);
    switch (upTo(11)) {
    case 0:
      define(s, "add " + pick(s) + ", " + pick(s) + " : (" + t + ", " + t + ") -> " + t);
      break;
    case 1:
      define(s, "sub " + pick(s) + ", " + pick(s) + " : (" + t + ", " + t + ") -> " + t);
      break;
    case 2:
      define(s, "activation gelu_tanh " + pick(s) + " : (" + t + ") -> " + t);
      break;
    case 3:
      define(s, "activation_grad silu " + pick(s) + ", " + pick(s) + " : (" + t + ", " + t + ") -> " + t);
      break;
    case 4: // product of shapes s and to, into either
      define(to, "einsum \"" + std::string(dims[s]) + ", " + dims[to] + " -> " + dims[to] + "\" " + pick(s) + ", " +
                     pick(to) + " : (" + t + ", " + u + ") -> " + u);
      break;
    case 5: { // sum or broadcast
      if (s == to)
        break;
      define(to, "einsum \"" + std::string(dims[s]) + " -> " + dims[to] + "\" " + pick(s) + " : (" + t + ") -> " + u);
      break;
    }
    case 6: {
      std::string f = type(shapes[0]), r = type(shapes[1]), e = type(shapes[2]),
                  name = "%v" + std::to_string(counter++);
      p.op(name + ", " + name + "_mean, " + name + "_rstd = pc.layer_norm " + pick(0) + ", " + pick(2) + ", " +
           pick(2) + " eps 1.0e-1 : (" + f + ", " + e + ", " + e + ") -> (" + f + ", " + r + ", " + r + ")");
      values[0].push_back(name);
      values[1].push_back(name + "_mean");
      values[1].push_back(name + "_rstd");
      break;
    }
    case 7: {
      std::string f = type(shapes[0]), r = type(shapes[1]), x = pick(0), name = "%v" + std::to_string(counter++);
      p.op(name + "_max = pc.reduce_max \"a b c -> a b\" " + x + " : (" + f + ") -> " + r);
      p.op(name + "_sum = pc.sum_exp " + x + ", " + name + "_max : (" + f + ", " + r + ") -> " + r);
      p.op(name + " = pc.pick " + x + ", " + targets + " : (" + f + ", " + type(shapes[1], "i32") + ") -> " + r);
      values[1].push_back(name);
      values[1].push_back(name + "_max");
      break;
    }
    case 8: { // a matrix product: no row op
      std::string f = type(shapes[0]), e = type(shapes[4]), r = type({a, b, b}),
                  name = "%v" + std::to_string(counter++);
      p.op(name + "_w = pc.einsum \"a b c, d c -> a b d\" " + pick(0) + ", " + pick(4) + " : (" + f + ", " + e +
           ") -> " + r);
      p.op(name + " = pc.einsum \"a b d, d c -> a b c\" " + name + "_w, " + pick(4) + " : (" + r + ", " + e + ") -> " +
           f);
      p.op(name + "_s = pc.scale " + name + " by 0.01 : (" + f + ") -> " + f);
      values[0].push_back(name + "_s");
      break;
    }
    case 9:
      p.output(pick(s), shapes[s]);
      break;
    case 10:
      define(s, "sqrt " + values[s][1] + " : (" + t + ") -> " + t);
      break;
    }
  }
  for (int s = 0; s < 5; ++s)
    p.output(values[s].back(), shapes[s]);
  check(context, "random " + std::to_string(seed), p.text(c), false, 20);
}

void microbatches(MLIRContext &context) {
  Program p;
  p.parameter({5, 7}); // %p0
  p.parameter({4, 5}); // %p1
  p.body += R"(  %t = pc.input tokens dims ["microbatch", "d"] global [3, 4] layout <[_, _]> : tensor<3x4xi32>
  %loss, %dw, %de = pc.accumulate (%ids = %t : tensor<3x4xi32> -> tensor<4xi32>) {
    %e = pc.embedding %p0, %ids : (tensor<5x7xf32>, tensor<4xi32>) -> tensor<4x7xf32>
    %sum = pc.einsum "i e, i e -> " %e, %e : (tensor<4x7xf32>, tensor<4x7xf32>) -> tensor<f32>
    %g = pc.einsum "i v, i e -> v e" %p1, %e : (tensor<4x5xf32>, tensor<4x7xf32>) -> tensor<5x7xf32>
    %d = pc.scale %e by 2.0 : (tensor<4x7xf32>) -> tensor<4x7xf32>
    %rows = pc.embedding_grad %d, %ids padding 2 : (tensor<4x7xf32>, tensor<4xi32>) -> tensor<5x7xf32>
    %all = pc.add %rows, %g : (tensor<5x7xf32>, tensor<5x7xf32>) -> tensor<5x7xf32>
    pc.yield %sum, %all, %d : tensor<f32>, tensor<5x7xf32>, tensor<4x7xf32>
  } : tensor<f32>, tensor<5x7xf32>, tensor<4x7xf32>
)";
  p.output("%loss", {});
  p.output("%dw", {5, 7});
  p.output("%de", {4, 7});
  check(context, "microbatches", p.text(5), false);
}

} // namespace

int main(int argc, char **argv) {
  llvm::outs().SetUnbuffered();
  DialectRegistry registry;
  pc::registerDialects(registry);
  pc::registerPasses();
  MLIRContext context(registry);
  if (argc == 4 && llvm::StringRef(argv[1]) == "--random") {
    for (unsigned seed = atoi(argv[2]), end = atoi(argv[3]); seed < end; ++seed)
      randomGraph(context, seed);
    argc = 2;
  } else
    for (int i = 1; i < argc; ++i)
      check(context, argv[i], argv[i], true, 20);
  if (argc == 1) {
    bool all = getenv("PC_LONG");
    using Columns = std::initializer_list<int64_t>;
    for (int64_t columns : all ? Columns{1, 15, 16, 17, 33, 70} : Columns{1, 16, 33}) {
      pointwise(context, {3, columns});
      norms(context, {2, 3}, columns);
      norms(context, {5}, columns);
      loss(context, {2, 3}, columns);
      routing(context, {2, 3}, columns);
    }
    for (int64_t columns : all ? Columns{1, 7, 16, 20, 33, 70} : Columns{7, 33}) {
      dropout(context, {2, 3, columns});
      dropout(context, {5, columns}, columns);
    }
    attention(context, 33, 33, 2, 3, 10, {.drops = true});
    attention(context, 5, 5, 1, 1, 64, {.drops = true});
    attention(context, 40, 40, 1, 2, 16, {.drops = true});
    attention(context, 70, 70, 2, 2, 10, {.window = 7});
    attention(context, 150, 150, 1, 1, 16, {.capped = true, .window = 40});
    attention(context, 40, 40, 2, 3, 12, {.sunk = true});
    attention(context, 70, 70, 1, 2, 64,
              {.drops = true, .biased = true, .sunk = true, .window = 7, .documented = true});
    attention(context, 33, 45, 2, 1, 8, {.biased = true, .capped = true});
    attention(context, 50, 50, 1, 2, 10, {.drops = true, .biased = true, .window = 1});
    attention(context, 70, 70, 2, 2, 10, {.documented = true});
    attention(context, 150, 150, 1, 1, 16, {.drops = true, .biased = true, .window = 9, .documented = true});
    rope(context, 12, 4);
    rope(context, 33, 6);
    rope(context, 64, 32);
    rope(context, 24, 8, 16);
    rope(context, 14, 6, 4);
    checkViews(context);
    pointwise(context, {});
    pointwise(context, {1});
    pointwise(context, {2, 1, 3});
    pointwise(context, {4099});
    norms(context, {300}, 100);
    norms(context, {1, 1}, 20);
    loss(context, {20}, 300);
    std::map<char, int64_t> sizes = {{'a', 3}, {'b', 4}, {'c', 5}, {'d', 17}, {'e', 1}, {'f', 33}};
    for (const char *spec : {"a b c -> a b c",
                             "a b c -> c b a",
                             "a b -> b a",
                             "b c -> a b c",
                             "a c -> a b c",
                             "a b -> a b c",
                             "c -> a b c",
                             "a -> a b c",
                             " -> a b",
                             "a b c -> a c",
                             "a b c -> b c",
                             "a b c -> b",
                             "a b c -> a",
                             "a b c -> c",
                             "a b c ->",
                             "a b d, a b d -> d",
                             "a b d, a d -> a b d",
                             "a b d, d -> a b",
                             "a b d, a b -> d",
                             "a b d, a b -> a b d",
                             "a b, b c -> a c",
                             "a b, c b -> a c",
                             "b a, b c -> a c",
                             "b a, c b -> a c",
                             "a b, b c -> c a",
                             "a c d, d f -> a c f",
                             "a c d, b a c -> b d",
                             "a b c d, b a d f -> a b c f",
                             "a b c, a b d -> a c d",
                             "a b c, a d c -> a b d",
                             "a b, c d -> a b c d",
                             "a b, a c, a d -> b c d",
                             "a b, b -> a",
                             "a, a -> a",
                             "a, b -> a b",
                             "e a, a b -> e b",
                             "a e, e b -> a b",
                             "a b c, c b d -> a d",
                             "a b c, b d c -> a d",
                             "a b e c, c d -> a b e d",
                             "a b, c -> b",
                             "a b c, c a -> b",
                             "a b c d, d b -> c a",
                             "d a, f d -> a f"})
      einsum(context, spec, sizes);
    packedHeads(context, 5, 2, 1, 8);
    packedHeads(context, 40, 1, 3, 20);
    packedHeads(context, 33, 3, 2, 64);
    packedHeads(context, 7, 2, 1, 5);
    microbatches(context);
    for (unsigned seed = 0; seed < (all ? 25 : 8); ++seed)
      randomGraph(context, seed);
  }
  return finishChecks();
}
