//===- Program.cpp - A random model program and a plan for it -------------===//
// Tokens are embedded; blocks of a random kind change the stream of [batch, sequence, embed], layer by layer; a head
// and a loss follow. Blocks do what transformers do not: they combine positions of the sequence and of the batch, count
// dims, cut rows and join them.
//===----------------------------------------------------------------------===//
#include "Program.h"

#include "Dice.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include <map>

namespace {

using Dims = std::vector<std::string>;

struct Value {
  std::string name; ///< with %
  Dims dims;
  const char *element = "f32";
};

std::string quoted(const Dims &dims) {
  return "[" + llvm::join(llvm::map_range(dims, [](const std::string &dim) { return "\"" + dim + "\""; }), ", ") + "]";
}

/// One line of text, and the lines that must come before it.
struct Line {
  std::string text;
  std::vector<size_t> reads;
};

/// Writes the lines of a random model; each method adds one op and returns its result.
class Writer {
public:
  explicit Writer(Dice &dice) : dice(dice) {}

  Dice &dice;
  std::map<std::string, int64_t> sizes; ///< of dims
  std::string place = "model";          ///< the name of what is written: "h.1.mix"
  Value tokens;                         ///< the input
  int frozen = 0;                       ///< percent of parameters that are not trained
  bool trains = false;                  ///< whether any parameter is trained
  std::vector<Line> lines;

  std::string type(const Dims &dims, llvm::StringRef element = "f32") const {
    std::string text = "tensor<";
    for (const std::string &dim : dims)
      text += std::to_string(sizes.at(dim)) + "x";
    return text + element.str() + ">";
  }
  std::string type(const Value &value) const { return type(value.dims, value.element); }

  /// Adds the op `what`, whose @ is replaced by the operands. Returns its result.
  Value op(llvm::StringRef what, const std::vector<Value> &operands, Dims dims, const char *element = "f32") {
    Value result{"%" + std::to_string(lines.size()), std::move(dims), element};
    auto names = llvm::map_range(operands, [](const Value &value) { return value.name; });
    auto types = llvm::map_range(operands, [&](const Value &value) { return type(value); });
    auto [front, back] = what.split('@');
    Line line{result.name + " = pc." + front.str() + llvm::join(names, ", ") + back.str() + " : (" +
                  llvm::join(types, ", ") + ") -> " + type(result),
              {}};
    for (const Value &operand : operands)
      line.reads.push_back(std::stoull(operand.name.substr(1)));
    return write(std::move(line), result);
  }
  Value leaf(llvm::StringRef text, Dims dims, const char *element = "f32") {
    Value result{"%" + std::to_string(lines.size()), std::move(dims), element};
    return write({result.name + " = pc." + text.str() + type(result), {}}, result);
  }
  void output(llvm::StringRef kind, const Value &value) {
    write({"pc.output " + kind.str() + " \"" + kind.str() + "\" " + value.name + " : " + type(value),
           {std::stoull(value.name.substr(1))}},
          value);
  }

  Value parameter(llvm::StringRef name, const Dims &dims, llvm::StringRef init = "<normal, 2.0e-02>") {
    std::string full = place + "." + name.str() + std::to_string(lines.size()), shape;
    for (const std::string &dim : dims)
      shape += (shape.empty() ? "" : ", ") + std::to_string(sizes.at(dim));
    std::string zeros = llvm::join(std::vector<std::string>(dims.size(), "0"), ", ");
    bool isFrozen = frozen && dice.chance(frozen);
    trains |= !isFrozen;
    return leaf("parameter \"" + full + "\"" + (isFrozen ? " frozen" : "") + " dims " + quoted(dims) + " init " +
                    init.str() + " source <\"" + full + "\", shape = [" + shape + "], start = [" + zeros +
                    "], size = [" + shape + "]> : ",
                dims);
  }
  /// Adds the product of `operands`, summed over dims that `dims` lacks.
  Value einsum(const std::vector<Value> &operands, Dims dims) {
    auto sides = llvm::map_range(operands, [](const Value &value) { return llvm::join(value.dims, " "); });
    return op("einsum \"" + llvm::join(sides, ", ") + " -> " + llvm::join(dims, " ") + "\" @", operands, dims);
  }
  Value unary(llvm::StringRef what, const Value &x) { return op(what.str() + " @", {x}, x.dims); }
  Value add(const Value &a, const Value &b) { return op("add @", {a, b}, a.dims); }
  Value sub(const Value &a, const Value &b) { return op("sub @", {a, b}, a.dims); }
  Value scaled(const Value &x, double by) { return op("scale @ by " + number(by), {x}, x.dims); }
  Value constant(double value) { return leaf("constant " + number(value) + " : ", {}); }
  /// Adds the numbers 0, 1, 2, ... as f32.
  Value count(const std::string &dim, int64_t from = 0) {
    Value index = leaf("iota " + (from ? "from " + std::to_string(from) + " " : "") + "-> ", {dim}, "i32");
    return op("cast @", {index}, {dim});
  }
  /// Adds pc.columns along dim `along`, which becomes `to`.
  Value columns(const Value &x, const std::string &along, const std::string &to, int64_t from,
                const std::string &steps = "") {
    Dims dims = x.dims;
    auto at = std::find(dims.begin(), dims.end(), along);
    *at = to;
    bool isLast = at + 1 == dims.end() && dice.chance(50);
    std::string dim = isLast ? "" : " dim " + std::to_string(at - dims.begin());
    return op("columns @" + dim + " from " + std::to_string(from) + steps, {x}, dims);
  }
  /// A dim "(a b)" consists of a and b.
  Value reshape(const Value &x, const Dims &dims) {
    return op("reshape \"" + llvm::join(x.dims, " ") + " -> " + llvm::join(dims, " ") + "\" @", {x}, dims);
  }
  static std::string number(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.17e", value);
    return text;
  }

private:
  Value write(Line line, const Value &result) {
    line.text += " loc(\"" + place + "\")";
    lines.push_back(std::move(line));
    return result;
  }
};

/// Blocks that compute a value from the stream x, [batch, sequence, embed]. The value is added to x.
class Blocks {
public:
  Blocks(Writer &w, uint64_t seed) : w(w), dice(w.dice), more(~seed) {}

  Value draw(const Value &x) {
    using Block = Value (Blocks::*)(const Value &);
    static constexpr std::pair<const char *, Block> blocks[] = {
        {"mlp", &Blocks::mlp},          {"mlp", &Blocks::mlp},         {"gate", &Blocks::gate},
        {"conv", &Blocks::convolution}, {"scan", &Blocks::scan},       {"mean", &Blocks::meanOfSequence},
        {"mixer", &Blocks::mixer},      {"softmax", &Blocks::softmax}, {"norm", &Blocks::norm},
        {"table", &Blocks::table},      {"count", &Blocks::counts},    {"batch", &Blocks::acrossBatch},
        {"attn", &Blocks::attention},   {"attn", &Blocks::attention},  {"slice", &Blocks::slices},
        {"choice", &Blocks::choice},    {"unit", &Blocks::unitRows},   {"angle", &Blocks::angles},
        {"larger", &Blocks::larger},    {"log", &Blocks::logSoftmax},  {"state", &Blocks::recurrence},
        {"stride", &Blocks::strides},   {"merge", &Blocks::merges},    {"pick", &Blocks::picks},
        {"same", &Blocks::sameRows},
    };
    auto [name, block] = blocks[dice.between(0, std::size(blocks) - 1)];
    if (more.chance(6))
      name = "square", block = &Blocks::square;
    else if (more.chance(6))
      name = "streams", block = &Blocks::streams;
    std::string before = w.place;
    w.place += std::string(".") + name;
    Value y = w.add(x, (this->*block)(x));
    w.place = before;
    return y;
  }

  Value activation(const Value &x) {
    return w.unary(std::string("activation ") +
                       dice.oneOf<const char *>({"gelu_tanh", "gelu", "silu", "relu", "tanh", "sigmoid"}),
                   x);
  }

private:
  const Dims stream{"batch", "sequence", "embed"};

  Value linear(const Value &x, const std::string &from, const std::string &to) {
    Dims dims = x.dims;
    std::replace(dims.begin(), dims.end(), from, to);
    return w.einsum({x, w.parameter("weight", {from, to})}, dims);
  }
  Value mlp(const Value &x) {
    Value h = linear(x, "embed", "ffn");
    if (dice.chance(50))
      h = w.add(h, w.einsum({w.parameter("bias", {"ffn"})}, h.dims));
    return linear(activation(h), "ffn", "embed");
  }
  Value gate(const Value &x) {
    Value a = linear(x, "embed", "ffn"), b = linear(x, "embed", "ffn");
    return linear(w.einsum({activation(a), b}, b.dims), "ffn", "embed");
  }
  /// A convolution along the sequence. Each tap reads the stream some positions earlier.
  Value convolution(const Value &x) {
    Value rows = dice.chance(50) ? x : w.einsum({x}, {"batch", "embed", "sequence"}), sum;
    for (int64_t tap = 0, taps = dice.between(2, 3); tap < taps; ++tap) {
      Value shifted = tap || dice.chance(50) ? w.columns(rows, "sequence", "sequence", -tap) : rows;
      Value term = dice.chance(50)
                       ? w.einsum({shifted, w.parameter("tap", {"embed"})}, stream)
                       : w.einsum({shifted, w.parameter("tap", {"embed", "width"})}, {"batch", "sequence", "width"});
      if (term.dims.back() == "width")
        term = linear(term, "width", "embed");
      sum = tap ? w.add(sum, term) : term;
    }
    return activation(sum);
  }
  /// A sum over earlier positions, by a triangle of ones; sometimes one that decays.
  Value scan(const Value &x) {
    Value to = w.count("sequence", 1), from = w.count("earlier");
    Value difference = w.sub(w.einsum({to}, {"sequence", "earlier"}), w.einsum({from}, {"sequence", "earlier"}));
    Value triangle = w.op("clamp @ from 0.0 to 1.0", {difference}, difference.dims);
    if (dice.chance(50)) {
      Value decay = w.unary("exp", w.scaled(difference, -0.3));
      triangle = w.einsum({triangle, decay}, triangle.dims);
    }
    Value source = x;
    source.dims = {"batch", "earlier", "embed"};
    return w.scaled(w.einsum({source, triangle}, stream), 0.2);
  }
  Value meanOfSequence(const Value &x) {
    Value mean = w.scaled(w.einsum({x}, {"batch", "embed"}), 1.0 / static_cast<double>(w.sizes["sequence"]));
    return w.einsum({activation(mean), w.constant(1)}, stream);
  }
  /// A product with weights between positions.
  Value mixer(const Value &x) {
    Value source = x;
    source.dims = {"batch", "earlier", "embed"};
    return w.einsum({activation(source), w.parameter("mix", {"earlier", "sequence"})}, stream);
  }
  static Dims without(Dims dims, const std::string &dim) {
    dims.erase(llvm::find(dims, dim));
    return dims;
  }
  /// A softmax along `dim` in pieces, which pc-raise recognises: e^x over its sum. Sometimes a number per row is
  /// subtracted from x.
  Value softmaxInPieces(Value x, const std::string &dim, bool mayShift = true) {
    if (mayShift && dice.chance(50))
      x = w.sub(x, w.einsum({w.einsum({x}, without(x.dims, dim))}, x.dims));
    Value e = w.unary("exp", x), sum = w.einsum({e}, without(x.dims, dim));
    return w.einsum({e, w.unary("recip", sum)}, x.dims);
  }
  Value softmax(const Value &x) {
    std::string dim = dice.oneOf<const char *>({"embed", "sequence"});
    if (dice.chance(50))
      return softmaxInPieces(x, dim);
    Dims order = without(stream, dim);
    order.push_back(dim);
    Value rows = dim == "embed" ? x : w.einsum({x}, order), y = w.op("softmax @", {rows}, order);
    return dim == "embed" ? y : w.einsum({y}, stream);
  }
  /// A norm along `dim` in pieces, which pc-raise recognises. Sometimes the mean is subtracted from x. Scale and root
  /// come in a random order.
  Value normInPieces(Value x, const std::string &dim) {
    Dims rows = without(x.dims, dim);
    double inverse = 1.0 / static_cast<double>(w.sizes[dim]);
    bool isCentered = dice.chance(50), isScaled = dice.chance(70);
    if (isCentered)
      x = w.sub(x, w.einsum({w.scaled(w.einsum({x}, rows), inverse)}, x.dims));
    Value mean = w.scaled(w.einsum({x, x}, rows), inverse);
    Value more = w.add(mean, w.einsum({w.constant(0.001)}, rows));
    Value root = dice.chance(50) ? w.unary("recip", w.unary("sqrt", more)) : w.unary("sqrt", w.unary("recip", more));
    Value y;
    switch (Value gamma = isScaled ? w.parameter("gamma", {dim}) : Value(); isScaled ? dice.between(0, 2) : 3) {
    case 0:
      y = w.einsum({gamma, root, x}, x.dims);
      break;
    case 1:
      y = w.einsum({w.einsum({x, gamma}, x.dims), root}, x.dims);
      break;
    case 2:
      y = w.einsum({gamma, w.einsum({root, x}, x.dims)}, x.dims);
      break;
    default:
      y = w.einsum({root, x}, x.dims);
    }
    return isCentered && dice.chance(50) ? w.add(w.einsum({w.parameter("beta", {dim})}, x.dims), y) : y;
  }
  Value norm(const Value &x) {
    if (dice.chance(50))
      return normInPieces(x, dice.oneOf<const char *>({"embed", "embed", "sequence"}));
    Value gamma = w.parameter("gamma", {"embed"}, "<fill, 1.0>");
    std::string rows = ", " + w.type({"batch", "sequence"});
    if (dice.chance(50))
      return multi("rms_norm @ eps 1.0e-05", {x, gamma}, "(" + w.type(x) + rows + ")", x.dims, 2);
    Value beta = w.parameter("beta", {"embed"}, "<fill, 0.0>");
    return multi("layer_norm @ eps 1.0e-05", {x, gamma, beta}, "(" + w.type(x) + rows + rows + ")", x.dims, 3);
  }
  /// A value that depends on the position: a parameter, rows that a count looks up, or the count itself.
  Value table(const Value &) {
    switch (dice.between(0, 2)) {
    case 0:
      return w.einsum({w.parameter("positions", {"sequence", "embed"})}, stream);
    case 1: {
      Value index = w.leaf("iota -> ", {"sequence"}, "i32");
      return w.einsum(
          {w.op("embedding @", {w.parameter("positions", {"position", "embed"}), index}, {"sequence", "embed"})},
          stream);
    }
    default:
      return w.einsum({w.scaled(w.count("sequence"), 0.1), w.parameter("slope", {"embed"})}, stream);
    }
  }
  Value counts(const Value &x) {
    std::string dim = dice.oneOf<const char *>({"embed", "sequence", "batch"});
    return w.einsum({x, w.scaled(w.count(dim), 0.05)}, stream);
  }
  Value acrossBatch(const Value &x) {
    if (dice.chance(40)) { // how alike sequences are
      Value other = x, mean = w.scaled(w.einsum({x}, {"batch", "embed"}), 0.3);
      other = mean;
      other.dims = {"other", "embed"};
      Value alike = w.einsum({mean, other}, {"batch", "other"});
      return w.scaled(w.einsum({alike, other}, stream), 0.1);
    }
    Value mean = w.scaled(w.einsum({x}, {"sequence", "embed"}), 1.0 / static_cast<double>(w.sizes["batch"]));
    return w.scaled(w.einsum({mean}, stream), -0.5);
  }
  /// A square table, in which each row's sum changes the column of the same index.
  Value square(const Value &x) {
    Value mean = w.scaled(w.einsum({x}, {"batch", "embed"}), 0.3), other = mean;
    other.dims = {"other", "embed"};
    Value table = w.einsum({mean, other}, {"batch", "other"});
    Value sums = more.chance(50) ? w.op("logsumexp @", {table}, {"batch"}) : w.einsum({table}, {"batch"});
    sums.dims = {"other"};
    Value both = w.einsum({table, activation(sums)}, {"batch", "other"});
    return w.scaled(w.einsum({w.unary("activation tanh", both), other}, stream), 0.1);
  }
  /// Equal copies of the stream that a small square matrix mixes. So its gradient does not depend on the copy.
  Value streams(const Value &x) {
    Value copies = w.einsum({x}, {"batch", "sequence", "copies", "embed"});
    Value mixed = w.einsum({copies, w.parameter("mix", {"copies", "mixed"})}, {"batch", "sequence", "mixed", "embed"});
    return w.einsum({activation(mixed), w.parameter("share", {"mixed"})}, stream);
  }
  Value attention(const Value &x) {
    Value q = w.einsum({x, w.parameter("q", {"embed", "kv_heads", "group", "head_dim"})},
                       {"batch", "sequence", "kv_heads", "group", "head_dim"});
    Value k = w.einsum({x, w.parameter("k", {"embed", "kv_heads", "head_dim"})},
                       {"batch", "sequence", "kv_heads", "head_dim"});
    Value v = w.einsum({x, w.parameter("v", {"embed", "kv_heads", "head_dim"})}, k.dims);
    if (dice.chance(40))
      return w.einsum({attentionInPieces(q, k, v), w.parameter("o", {"kv_heads", "group", "head_dim", "embed"})},
                      stream);
    std::string causal = dice.chance(70) ? "causal " : "",
                window = !causal.empty() && dice.chance(15) ? " window 3" : "";
    std::string types = "(" + w.type(q) + ", " + w.type({"batch", "kv_heads", "group", "sequence"}) + ")";
    Value o = multi("attention " + causal + "@ scale 0.5" + window, {q, k, v}, types, q.dims, 2);
    return w.einsum({o, w.parameter("o", {"kv_heads", "group", "head_dim", "embed"})}, stream);
  }
  /// Attention in pieces, which pc-raise recognises in some cases. It has a mask of the past, of the future, or none.
  /// Masks may be strict.
  Value attentionInPieces(const Value &q, Value k, Value v) {
    k.dims[1] = v.dims[1] = "earlier";
    Dims order = {"batch", "kv_heads", "group", "sequence", "earlier"};
    Value scores = w.scaled(w.einsum({q, k}, order), 0.5);
    bool seesSome = true; // else pieces would divide by a sum of 0
    if (dice.chance(70)) {
      Value to = w.einsum({w.count("sequence")}, order), from = w.einsum({w.count("earlier")}, order);
      Value low = w.einsum({w.constant(dice.chance(80) ? -1e9 : -3)}, order);
      bool isStrict = dice.chance(50), isTurned = dice.chance(50), isHidden = dice.chance(50);
      seesSome = isStrict == isHidden;
      scores =
          w.op(isStrict ? "select less @" : "select less_equal @",
               {isTurned ? to : from, isTurned ? from : to, isHidden ? low : scores, isHidden ? scores : low}, order);
    }
    Value weights = seesSome && dice.chance(50) ? softmaxInPieces(scores, "earlier", /*mayShift=*/false)
                                                : w.op("softmax @", {scores}, order);
    return w.einsum({weights, v}, q.dims);
  }
  /// Parts of rows, concatenated in another order.
  Value slices(const Value &x) {
    int64_t cut = dice.between(1, w.sizes["embed"] - 1), rest = w.sizes["embed"] - cut;
    w.sizes["front" + std::to_string(cut)] = cut;
    std::string part = "front" + std::to_string(cut);
    Value front = w.columns(x, "embed", part, 0);
    return w.add(w.columns(activation(front), part, "embed", -rest), w.columns(x, "embed", "embed", cut));
  }
  /// Reads every second entry of a dim, and puts the entries back among zeros.
  Value strides(const Value &x) {
    std::string dim = dice.oneOf<const char *>({"sequence", "sequence", "embed", "batch"}), half = "half_" + dim;
    w.sizes[half] = w.sizes[dim] / 2;
    Value some = activation(w.columns(x, dim, half, dice.between(0, 2) - 1, " step 2"));
    return w.columns(some, half, dim, -dice.between(0, 1), " every 2");
  }
  /// Merges or divides dims, and restores them.
  Value merges(const Value &x) {
    if (dice.chance(60)) { // channels in another order
      w.sizes["high"] = 2, w.sizes["low"] = w.sizes["embed"] / 2, w.sizes["(high low)"] = w.sizes["embed"];
      Value cut = x;
      cut.dims.back() = "(high low)";
      Value turned =
          w.einsum({w.reshape(cut, {"batch", "sequence", "high", "low"})}, {"batch", "sequence", "low", "high"});
      w.sizes["(low high)"] = w.sizes["embed"];
      Value y = w.reshape(activation(turned), {"batch", "sequence", "(low high)"});
      y.dims = stream;
      return y;
    }
    bool ofBatch = dice.chance(40);
    w.sizes["(batch sequence)"] = w.sizes["batch"] * w.sizes["sequence"];
    w.sizes["(sequence embed)"] = w.sizes["sequence"] * w.sizes["embed"];
    Dims dims = ofBatch ? Dims{"(batch sequence)", "embed"} : Dims{"batch", "(sequence embed)"};
    return w.reshape(activation(w.reshape(x, dims)), stream);
  }
  /// Each token looks up a row of a computed value, which may come from its sequence or from all sequences, and from
  /// all positions or only from some.
  Value picks(const Value &x) {
    auto mixed = [&](const Dims &dims) { return w.einsum({x, w.parameter("mix", {"sequence", "vocab"})}, dims); };
    switch (dice.between(0, 2)) {
    case 0:
      return w.op("embedding @ batch 1", {mixed({"batch", "vocab", "embed"}), w.tokens}, stream);
    case 1:
      return w.op("embedding @", {w.scaled(mixed({"vocab", "embed"}), 0.2), w.tokens}, stream);
    default:
      Value rows = w.einsum({x}, {"sequence", "batch", "embed"});
      Value index = w.leaf("iota pieces [0, 2, 3] values [3, 0, 1] -> ", {"sequence"}, "i32");
      return w.einsum({w.op("embedding @", {rows, index}, {"sequence", "batch", "embed"})}, stream);
    }
  }
  /// A value that is equal for all sequences of the batch becomes a row of each. The sum over the sequences is also
  /// used.
  Value sameRows(const Value &x) {
    Value scale = w.parameter("scale", {"embed"}), rows = w.einsum({scale}, {"batch", "embed"});
    Value zero = w.einsum({w.constant(0)}, rows.dims);
    Value chosen = w.op("select less @", {rows, zero, rows, w.scaled(rows, 0.5)}, rows.dims);
    Value mean = w.scaled(w.einsum({chosen}, {"embed"}), 1.0 / static_cast<double>(w.sizes["batch"]));
    Value each = dice.chance(50) ? w.einsum({x, chosen}, stream) : x;
    return w.einsum({each, mean}, stream);
  }
  Value choice(const Value &x) {
    Value scores = linear(x, "embed", "ffn");
    Value chosen = w.op("top_k @ k " + std::to_string(dice.between(1, 2)), {scores}, scores.dims);
    return linear(w.einsum({scores, chosen}, scores.dims), "ffn", "embed");
  }
  /// Divides each row by its length.
  Value angles(const Value &x) {
    Value h = w.scaled(linear(x, "embed", "ffn"), 20);
    return linear(w.add(w.unary("sin", h), w.unary("cos", h)), "ffn", "embed");
  }
  /// Chooses the larger or smaller of two projections, or one of them by position.
  Value larger(const Value &x) {
    Value a = linear(x, "embed", "ffn"), b = linear(x, "embed", "ffn");
    std::string kind = std::string("select ") + dice.oneOf<const char *>({"less", "less_equal", "equal"}) + " @";
    Value left = a, right = b;
    if (dice.chance(40)) {
      left = w.einsum({w.count("sequence")}, a.dims);
      right = w.einsum({w.constant(double(dice.between(0, 3)))}, a.dims);
    }
    return linear(w.op(kind, {left, right, a, b}, a.dims), "ffn", "embed");
  }
  Value logSoftmax(const Value &x) {
    Value h = linear(x, "embed", "ffn");
    Value sums = dice.chance(50) ? w.op("logsumexp @", {h}, {"batch", "sequence"})
                                 : w.unary("log", w.einsum({w.unary("exp", h)}, {"batch", "sequence"}));
    return linear(w.sub(h, w.einsum({sums}, h.dims)), "ffn", "embed");
  }
  /// A recurrence whose states are one or several numbers. Its factors are one for each channel and token, for each
  /// token, or for each channel.
  Value recurrence(const Value &x) {
    Value b = linear(x, "embed", "ffn"), a;
    bool isWide = dice.chance(50);
    if (isWide)
      b = w.einsum({b, linear(x, "embed", "width")}, {"batch", "sequence", "ffn", "width"});
    switch (dice.between(0, 2)) {
    case 0:
      a = linear(x, "embed", "ffn");
      break;
    case 1:
      a = w.einsum({x, w.parameter("decay", {"embed"})}, {"batch", "sequence"});
      break;
    default:
      a = w.parameter("decay", {"ffn"});
    }
    a = w.unary("activation sigmoid", a);
    std::string along = dice.oneOf<const char *>({"sequence", "sequence", "sequence", "batch", "ffn"});
    std::string dims = llvm::join(b.dims, " "), spec = llvm::join(a.dims, " ") + ", " + dims + " -> " + dims;
    Value h = w.op("recurrence \"" + spec + "\" along \"" + along + "\"" + (dice.chance(30) ? " reverse @" : " @"),
                   {a, b}, b.dims);
    if (isWide)
      h = w.einsum({h, linear(x, "embed", "width")}, {"batch", "sequence", "ffn"});
    return linear(h, "ffn", "embed");
  }
  Value unitRows(const Value &x) {
    Value squares = w.einsum({x, x}, {"batch", "sequence"});
    Value some = w.add(squares, w.einsum({w.constant(0.5)}, squares.dims));
    return w.einsum({x, w.unary("recip", w.unary("sqrt", some))}, stream);
  }
  /// Returns the first result of an op that has several.
  Value multi(llvm::StringRef what, const std::vector<Value> &operands, const std::string &types, Dims dims,
              int count) {
    Value result = w.op(what, operands, std::move(dims));
    std::string &text = w.lines.back().text;
    size_t arrow = text.rfind(" -> "), end = text.rfind(" loc(");
    text.replace(arrow, end - arrow, " -> " + types);
    text.replace(0, text.find(" ="), result.name + ":" + std::to_string(count));
    renamed[result.name] = result.name + "#0";
    return result;
  }

  Writer &w;
  Dice &dice;
  Dice more; ///< draws blocks that were added later, so that the seeds of older tests give the same programs

public:
  std::map<std::string, std::string> renamed; ///< the first results of ops that have several
};

/// The loss of one number per token, [batch, sequence], or of logits.
Value drawLoss(Writer &w, Blocks &, const Value &logits, const Value &x) {
  Dice &dice = w.dice;
  w.place = "loss";
  double tokens = static_cast<double>(w.sizes["batch"] * w.sizes["sequence"]);
  Value nll;
  if (dice.chance(80)) {
    Value targets = w.leaf("input targets dims [\"batch\", \"sequence\"] : ", {"batch", "sequence"}, "i32");
    nll = w.op("cross_entropy @", {logits, targets}, {"batch", "sequence"});
  } else { // a loss of the logits' squares
    nll = w.scaled(w.einsum({logits, logits}, {"batch", "sequence"}), 0.5);
  }
  if (dice.chance(15)) { // adds a term for the size of logits
    Value sum;
    if (dice.chance(50)) { // a z-loss
      sum = w.op("logsumexp @", {logits}, {"batch", "sequence"});
    } else {
      Value some = w.unary("exp", w.unary("activation tanh", logits));
      sum = w.unary("log", w.einsum({some}, {"batch", "sequence"}));
    }
    nll = w.add(nll, w.scaled(w.einsum({sum, sum}, sum.dims), 0.01));
  }
  Value loss;
  if (dice.chance(60)) {
    Value weights = w.leaf("input loss_weights dims [\"batch\", \"sequence\"] : ", {"batch", "sequence"});
    loss = w.einsum({nll, weights}, {});
  } else {
    loss = w.scaled(w.einsum({nll}, {}), 1 / tokens);
  }
  switch (dice.between(0, 11)) {
  case 0:
    return w.einsum({loss, loss}, {});
  case 1:
    return w.unary("sqrt", w.add(w.einsum({loss, loss}, {}), w.constant(0.1)));
  case 2: { // adds a term of parameters
    Value weights = w.parameter("scale", {"embed"});
    Value more = w.scaled(w.einsum({weights, weights}, {}), 0.1);
    return w.add(loss, more);
  }
  case 3: { // adds a term of the mean of all rows
    Value mean = w.scaled(w.einsum({x}, {"embed"}), 1 / tokens);
    return w.add(loss, w.einsum({mean, mean}, {}));
  }
  case 4: { // adds a term of each row
    Value more = w.scaled(w.einsum({x, x}, {}), 0.01 / tokens);
    return w.add(loss, more);
  }
  default:
    return loss;
  }
}

std::string drawFlags(Dice &dice) {
  std::string mesh, flags;
  auto axis = [&](const std::string &name, int64_t size) {
    mesh += (mesh.empty() ? "" : ",") + name + "=" + std::to_string(size);
  };
  switch (dice.between(0, 11)) {
  case 0:
    axis("dp", dice.between(2, 3));
    break;
  case 1:
    axis("dp", 2), flags += " zero=" + std::to_string(dice.between(1, 3));
    break;
  case 2:
    axis("tp", 2), flags += dice.chance(50) ? " sequence-parallel" : "";
    break;
  case 3:
    axis("cp", 2), flags += " context-parallel=heads";
    break;
  case 4:
  case 5:
  case 6:
    axis("cp", 2), flags += " context-parallel=ring";
    break;
  case 7:
    axis("pp", 2);
    break;
  case 8:
    axis("dp", 2), axis("tp", 2), flags += dice.chance(50) ? " zero=3" : "";
    break;
  case 9:
    axis("tp", 2), flags += " tensor-parallel=free";
    break;
  case 10:
    axis("dp", 2), axis("cp", 2), flags += " context-parallel=ring";
    break;
  default:
    if (dice.chance(50))
      axis("dp", 2);
    axis("pp", 2);
  }
  bool hasPipeline = mesh.find("pp") != std::string::npos;
  if (dice.chance(hasPipeline ? 90 : 40))
    flags += std::string(" microbatches=") + dice.oneOf<const char *>({"2", "2", "2", "3"});
  if (dice.chance(15))
    flags += std::string(" recompute=") + dice.oneOf<const char *>({"full", "selective"});
  if (dice.chance(15))
    flags += " precision=bf16";
  if (dice.chance(15))
    flags += " optimizer=sgd";
  return "mesh=" + mesh + flags;
}

/// Sometimes puts the lines in another order, with operands before their readers.
void shuffleLines(Dice &dice, std::vector<Line> &lines) {
  std::vector<Line> order;
  std::vector<bool> done(lines.size());
  while (order.size() < lines.size()) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < lines.size(); ++i)
      if (!done[i] && llvm::all_of(lines[i].reads, [&](size_t from) { return done[from]; }))
        ready.push_back(i);
    size_t next = ready[dice.between(0, ready.size() - 1)];
    done[next] = true;
    order.push_back(lines[next]);
  }
  lines = std::move(order);
}

} // namespace

RandomProgram::RandomProgram(uint64_t seed) {
  Dice dice(seed);
  Writer w(dice);
  int64_t sequence = dice.oneOf<int64_t>({4, 8, 8, 12}), layers = dice.between(1, 3);
  int64_t batch = dice.oneOf<int64_t>({4, 8, 12, 12, 12}), embed = dice.oneOf<int64_t>({4, 6, 8});
  w.sizes = {{"batch", batch},      {"sequence", sequence},
             {"embed", embed},      {"ffn", dice.oneOf<int64_t>({4, 6, 8})},
             {"width", 4},          {"vocab", dice.oneOf<int64_t>({8, 9, 12, 16})},
             {"kv_heads", 2},       {"group", dice.between(1, 2)},
             {"head_dim", 2},       {"position", sequence + dice.between(0, 2)},
             {"earlier", sequence}, {"other", batch},
             {"copies", 3},         {"mixed", 3}};
  Blocks blocks(w, seed);
  Value tokens = w.leaf("input tokens dims [\"batch\", \"sequence\"] : ", {"batch", "sequence"}, "i32");
  w.tokens = tokens;
  w.place = "table";
  w.frozen = dice.chance(30) ? 60 : 0;
  Value table = w.parameter("weight", {"vocab", "embed"});
  Value x = w.op("embedding @", {table, tokens}, {"batch", "sequence", "embed"});
  for (int64_t layer = 0; layer < layers; ++layer)
    for (int64_t block = 0, count = dice.between(1, 2); block < count; ++block) {
      w.place = "h." + std::to_string(layer);
      x = blocks.draw(x);
    }
  w.place = "head";
  bool isTied = dice.chance(30) && w.trains;
  if (!w.trains)
    w.frozen = 0;
  Value logits =
      w.einsum({x, isTied ? table : w.parameter("weight", {"vocab", "embed"})}, {"batch", "sequence", "vocab"});
  if (dice.chance(60))
    w.output("logits", logits);
  Value loss = drawLoss(w, blocks, logits, x);
  w.output("loss", loss);
  flags = drawFlags(dice);
  if (dice.chance(25))
    shuffleLines(dice, w.lines);
  text = "pc.program \"random\" batch " + std::to_string(batch) + " sequence " + std::to_string(sequence) +
         " vocabulary " + std::to_string(w.sizes["vocab"]) + " config \"{}\"\nfunc.func @model() {\n";
  for (Line &line : w.lines) {
    llvm::StringRef rest = line.text;
    text += "  ";
    // Readers name the first of several results %n#0.
    bool isHead = true;
    for (size_t at = 0; at < rest.size();) {
      size_t end = rest[at] == '%' ? rest.find_first_not_of("0123456789", at + 1) : at + 1;
      std::string word = rest.slice(at, end).str();
      auto it = isHead ? blocks.renamed.end() : blocks.renamed.find(word);
      text += it == blocks.renamed.end() ? word : it->second;
      isHead = isHead && rest[at] != '=';
      at = end;
    }
    text += "\n";
  }
  text += "  return\n}\n";
}
