//===- kernels-test.cpp - Every special kernel compared with plain loops in double -===//
// Tests odd shapes and both vector widths. Two ways to divide the items must give equal bits, and no kernel may write
// outside of a result. The test uses no MLIR. With PC_LONG=1 kernels are optimized as in programs. Otherwise they are
// optimized less, because execute-test and all tests that run programs use O3.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "Jit.h"
#include "base/Types.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

namespace {
using Reals = std::vector<double>;
std::mt19937 generator(1);

/// A tensor with its type as text; floats have a guard element after the end.
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> data;
  std::vector<int32_t> ids;     ///< instead of data
  std::vector<uint16_t> halves; ///< the data as kernels see it, if they read bf16

  explicit Tensor(std::vector<int64_t> shape, double deviation = 1) : shape(shape), data(size() + 1) {
    std::normal_distribution<float> normal(0, float(deviation));
    for (float &x : data)
      x = normal(generator);
  }
  static Tensor integers(std::vector<int64_t> shape, int32_t lo, int32_t hi) {
    Tensor t(shape);
    std::uniform_int_distribution<int32_t> uniform(lo, hi);
    for (int64_t i = 0; i < t.size(); ++i)
      t.ids.push_back(uniform(generator));
    return t;
  }
  /// Rounds the data to bf16.
  void narrow() {
    halves.clear();
    for (float &x : data)
      halves.push_back(pcrt::floatToBf16(x)), x = pcrt::bf16ToFloat(halves.back());
  }
  /// Copies the bf16 elements that a kernel has written to `data`.
  void widen() {
    for (size_t i = 0; i < halves.size(); ++i)
      data[i] = pcrt::bf16ToFloat(halves[i]);
  }
  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : shape)
      n *= d;
    return n;
  }
  std::string type() const {
    std::string s = "tensor<";
    for (int64_t d : shape)
      s += std::to_string(d) + "x";
    return s + (!ids.empty() ? "i32>" : halves.empty() ? "f32>" : "bf16>");
  }
  void *address() {
    return !ids.empty() ? ids.data() : halves.empty() ? static_cast<void *>(data.data()) : halves.data();
  }
};

std::string text(const std::string &op, const std::vector<Tensor *> &operands, const std::vector<Tensor *> &results,
                 const std::string &format) {
  std::string arguments, in, out;
  for (size_t i = 0; i < operands.size(); ++i) {
    std::string comma = i ? ", " : "";
    arguments += comma + "%" + std::to_string(i) + ": " + operands[i]->type();
    in += comma + operands[i]->type();
  }
  for (size_t i = 0; i < results.size(); ++i)
    out += (i ? ", " : "") + results[i]->type();
  return "func.func @f(" + arguments + ") {\n  %r:" + std::to_string(results.size()) + " = pc." + op + " " + format +
         " : (" + in + ") -> (" + out + ")\n  return\n}\n";
}

double largestOf(const Reals &values) {
  double largest = 0;
  for (double value : values)
    if (std::isfinite(value))
      largest = std::max(largest, std::fabs(value));
  return largest;
}

double error(const Tensor &got, const Reals &want) {
  double largest = largestOf(want), difference = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    double d = got.data[i] == want[i] ? 0 : std::fabs(got.data[i] - want[i]);
    difference = std::isnan(d) ? INFINITY : std::max(difference, d);
  }
  return largest > 0 ? difference / largest : difference;
}

void report(const std::string &what, bool ok, const std::string &detail) { expect(ok, what + ": " + detail); }

/// Runs the op with both vector widths: without the CPU's instructions for bf16, with all of them, and with only the
/// one that rounds. Compares the results. `inPlace[r]` is the operand whose memory result r takes, or -1.
void check(const std::string &op, const std::vector<Tensor *> &operands, const std::vector<Tensor *> &results,
           const std::string &format, const std::vector<Reals> &want, double tolerance, std::vector<int> inPlace = {},
           int64_t status = 0) {
  std::string source = text(op, operands, results, format);
  bool bf16 = source.find("bf16") != std::string::npos;
  struct Form {
    int64_t lanes;
    bool rounds = false, pairs = false; // by instructions
  };
  for (auto [lanes, rounds, pairs] : {Form{8}, {16}, {8, true}, {16, true}, {8, true, true}, {16, true, true}}) {
    if (lanes > hostLanes() || (rounds && !(bf16 && hostRoundsToBf16())))
      continue;
    std::vector<JitKernel> kernels = jitOp(source, lanes, rounds, pairs);
    std::vector<std::vector<float>> first;
    for (int64_t range : {0, 1, 3}) {
      std::vector<void *> args;
      for (Tensor *t : operands)
        args.push_back(t->address());
      for (size_t r = 0; r < results.size(); ++r) {
        Tensor *t = results[r];
        bool alias = r < inPlace.size() && inPlace[r] >= 0;
        t->data.assign(t->size() + 1, alias ? 0 : NAN);
        if (alias)
          std::copy_n(operands[inPlace[r]]->data.begin(), t->size(), t->data.begin());
        t->data.back() = 42;
        if (!t->halves.empty())
          t->narrow();
        args.push_back(t->address());
        if (alias)
          args[inPlace[r]] = t->address();
      }
      int64_t got = 0;
      for (const JitKernel &kernel : kernels)
        got = std::max(got, kernel.run(args, range));
      for (Tensor *t : results)
        t->widen();
      std::string what = source + "lanes " + std::to_string(lanes) + (rounds ? " rounds bf16" : "") +
                         (pairs ? " in pairs" : "") + ", range " + std::to_string(range);
      report(what, got == status, "status " + std::to_string(got));
      for (size_t r = 0; r < results.size(); ++r) {
        double e = error(*results[r], want[r]);
        std::string name = "result " + std::to_string(r);
        report(what, e <= tolerance, name + " is off by " + std::to_string(e * 1e6) + "e-6");
        report(what, results[r]->data.back() == 42, name + " is written past its end");
        if (range == 0)
          first.push_back(results[r]->data);
        else
          report(what, !memcmp(first[r].data(), results[r]->data.data(), results[r]->size() * 4),
                 name + " depends on how items are cut");
      }
    }
  }
}

enum class Sees { all, causal, counts };

/// If `bf16`, all tensors except lse are bf16. Results, weights and the gradients of scores are then rounded to 2^-8,
/// so a result may differ by its own rounding and by that of its addends.
void attention(int64_t b, int64_t s, int64_t t, int64_t heads, int64_t groups, int64_t d, Sees sees, bool bf16 = false,
               double deviation = 1) {
  Tensor q({b, s, heads, groups, d}, deviation), k({b, t, heads, d}, deviation), v({b, t, heads, d});
  Tensor o(q.shape), lse({b, heads, groups, s}), dout(q.shape), dq(q.shape), dk(k.shape), dv(v.shape);
  if (bf16)
    for (Tensor *x : {&q, &k, &v, &o, &dout, &dq, &dk, &dv})
      x->narrow();
  Tensor counts = Tensor::integers({s}, 0, int32_t(t));
  std::sort(counts.ids.begin(), counts.ids.end());
  counts.ids[0] = 0; // the first query sees nothing
  auto seen = [&](int64_t i) {
    return sees == Sees::counts ? counts.ids[i] : sees == Sees::causal ? std::min(i + 1, t) : t;
  };
  const double scale = 0.125;
  Reals wantO(o.size()), wantLse(lse.size()), wantDq(q.size()), wantDk(k.size()), wantDv(v.size());
  auto query = [&](int64_t batch, int64_t i, int64_t head) { return ((batch * s + i) * heads * groups + head) * d; };
  auto key = [&](int64_t batch, int64_t j, int64_t head) { return ((batch * t + j) * heads + head / groups) * d; };
  auto dot = [&](const float *x, const float *y) {
    double sum = 0;
    for (int64_t c = 0; c < d; ++c)
      sum += double(x[c]) * y[c];
    return sum;
  };
  auto forEachRow = [&](auto body) {
    for (int64_t batch = 0; batch < b; ++batch)
      for (int64_t head = 0; head < heads * groups; ++head)
        for (int64_t i = 0; i < s; ++i) {
          Reals p(seen(i));
          double maximum = -INFINITY, sum = 0;
          for (size_t j = 0; j < p.size(); ++j) {
            p[j] = scale * dot(&q.data[query(batch, i, head)], &k.data[key(batch, j, head)]);
            maximum = std::max(maximum, p[j]);
          }
          for (double x : p)
            sum += std::exp(x - maximum);
          double l = maximum + std::log(sum);
          for (double &x : p)
            x = std::exp(x - l);
          body(batch, head, i, p, l);
        }
  };
  forEachRow([&](int64_t batch, int64_t head, int64_t i, const Reals &p, double l) {
    wantLse[(batch * heads * groups + head) * s + i] = l;
    for (size_t j = 0; j < p.size(); ++j)
      for (int64_t c = 0; c < d; ++c)
        wantO[query(batch, i, head) + c] += p[j] * v.data[key(batch, j, head) + c];
  });
  std::string flag = sees == Sees::all ? "" : "causal ", attribute = " scale " + std::to_string(scale);
  std::vector<Tensor *> operands = {&q, &k, &v}, gradientOperands = {&q, &k, &v, &o, &lse, &dout};
  if (sees == Sees::counts)
    operands.push_back(&counts), gradientOperands.push_back(&counts);
  auto format = [&](const std::string &matrices, int last) {
    return flag + matrices + (sees == Sees::counts ? " sees %" + std::to_string(last) : "") + attribute;
  };
  check("attention", operands, {&o, &lse}, format("%0, %1, %2", 3), {wantO, wantLse}, bf16 ? 4e-3 : 4e-6 * deviation);
  for (int64_t i = 0; i < o.size(); ++i)
    o.data[i] = float(wantO[i]);
  for (int64_t i = 0; i < lse.size(); ++i)
    lse.data[i] = float(wantLse[i]);
  if (bf16)
    o.narrow();
  Reals sizeDq(q.size()), sizeDk(k.size()), sizeDv(v.size()); // the sums of the addends' magnitudes
  forEachRow([&](int64_t batch, int64_t head, int64_t i, const Reals &p, double) {
    int64_t at = query(batch, i, head);
    double correction = 0;
    for (int64_t c = 0; c < d; ++c)
      correction += double(o.data[at + c]) * dout.data[at + c];
    for (size_t j = 0; j < p.size(); ++j) {
      int64_t from = key(batch, j, head);
      double ds = p[j] * (dot(&dout.data[at], &v.data[from]) - correction) * scale;
      for (int64_t c = 0; c < d; ++c) {
        wantDq[at + c] += ds * k.data[from + c];
        wantDk[from + c] += ds * q.data[at + c];
        wantDv[from + c] += p[j] * dout.data[at + c];
        sizeDq[at + c] += std::fabs(ds * k.data[from + c]);
        sizeDk[from + c] += std::fabs(ds * q.data[at + c]);
        sizeDv[from + c] += std::fabs(p[j] * dout.data[at + c]);
      }
    }
  });
  double ratio = 0;
  for (auto [want, size] : {std::pair{&wantDq, &sizeDq}, {&wantDk, &sizeDk}, {&wantDv, &sizeDv}})
    if (double largest = largestOf(*want); largest > 0)
      ratio = std::max(ratio, largestOf(*size) / largest);
  check("attention_grad", gradientOperands, {&dq, &dk, &dv}, format("%0, %1, %2, %3, %4, %5", 6),
        {wantDq, wantDk, wantDv}, bf16 ? 1.02 * (1 + ratio) / 256 : 6e-6 * deviation);
}

void normGrad(int64_t rows, int64_t columns, bool layerNorm) {
  Tensor dy({1, rows, columns}), x(dy.shape, 3), mean({1, rows}), rstd({1, rows}), gamma({columns});
  Tensor dx(dy.shape), dgamma({columns}), dbeta({columns});
  Reals wantDx(x.size()), wantGamma(columns), wantBeta(columns);
  for (int64_t r = 0; r < rows; ++r) {
    const float *row = &x.data[r * columns], *g = &dy.data[r * columns];
    double sum = 0, squares = 0, along = 0, offset = 0;
    for (int64_t c = 0; c < columns; ++c)
      sum += row[c];
    mean.data[r] = float(layerNorm ? sum / columns : 0);
    for (int64_t c = 0; c < columns; ++c)
      squares += std::pow(row[c] - double(mean.data[r]), 2);
    rstd.data[r] = float(1 / std::sqrt(squares / columns + 1e-5));
    auto normal = [&](int64_t c) { return (row[c] - double(mean.data[r])) * rstd.data[r]; };
    for (int64_t c = 0; c < columns; ++c) {
      along += g[c] * double(gamma.data[c]) * normal(c) / columns;
      offset += layerNorm ? g[c] * double(gamma.data[c]) / columns : 0;
      wantGamma[c] += g[c] * normal(c);
      wantBeta[c] += g[c];
    }
    for (int64_t c = 0; c < columns; ++c)
      wantDx[r * columns + c] = rstd.data[r] * (g[c] * double(gamma.data[c]) - offset - normal(c) * along);
  }
  // A single column has an exact dx of (almost) zero.
  double tolerance = columns == 1 ? 1 : 3e-6;
  if (layerNorm)
    check("layer_norm_grad", {&dy, &x, &mean, &rstd, &gamma}, {&dx, &dgamma, &dbeta}, "%0, %1, %2, %3, %4",
          {wantDx, wantGamma, wantBeta}, tolerance);
  else
    check("rms_norm_grad", {&dy, &x, &rstd, &gamma}, {&dx, &dgamma}, "%0, %1, %2, %3", {wantDx, wantGamma}, tolerance);
}

void embedding(int64_t rows, int64_t width, int64_t ids) {
  for (int64_t offset : {-1, 0, 5}) { // -1: a whole table
    Tensor table({rows, width}), index = Tensor::integers({1, ids}, 0, int32_t(offset < 0 ? rows - 1 : rows + 9));
    Tensor start({}), out({1, ids, width}), dy({1, ids, width}), gradient({rows, width});
    start.ids = {int32_t(offset)};
    Reals want(out.size()), wantGradient(table.size()), wantPadded(table.size());
    const int64_t padding = index.ids[ids / 2];
    for (int64_t i = 0; i < ids; ++i) {
      int64_t row = index.ids[i] - std::max<int64_t>(offset, 0);
      for (int64_t c = 0; c < width && row >= 0 && row < rows; ++c) {
        want[i * width + c] = table.data[row * width + c];
        wantGradient[row * width + c] += dy.data[i * width + c];
        wantPadded[row * width + c] += index.ids[i] == padding ? 0 : dy.data[i * width + c];
      }
    }
    std::vector<Tensor *> in = {&table, &index}, inGradient = {&dy, &index};
    if (offset >= 0)
      in.push_back(&start), inGradient.push_back(&start);
    std::string format = offset < 0 ? "%0, %1" : "%0, %1 offset %2";
    check("embedding", in, {&out}, format, {want}, 0);
    check("embedding_grad", inGradient, {&gradient}, format, {wantGradient}, 1e-6);
    check("embedding_grad", inGradient, {&gradient}, format + " padding " + std::to_string(padding), {wantPadded},
          1e-6);
    for (int32_t bad : {-1, int32_t(rows)}) { // the first bad id is reported, and no kernel reads memory at it
      if (offset >= 0)
        continue;
      index.ids[ids / 2] = bad;
      for (int64_t c = 0; c < width; ++c)
        want[ids / 2 * width + c] = 0;
      check("embedding", in, {&out}, format, {want}, 0, {}, ids / 2 + 1);
    }
  }
}

void optimizers(std::vector<int64_t> shape) {
  Tensor p(shape), g(shape), m(shape, 0.1), v(shape, 0.1), coefficient({}), hyper({9});
  Tensor newP(shape), newM(shape), newV(shape);
  const double lr = 0.01, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, bias1 = 0.271, bias2 = 0.142625;
  hyper.data = {float(lr), float(beta1), float(beta2), float(eps), float(decay), float(bias1), float(bias2),
                1,         INFINITY};
  coefficient.data[0] = 0.5f;
  Reals adamP(p.size()), adamM(p.size()), adamV(p.size()), sgdP(p.size());
  for (int64_t i = 0; i < p.size(); ++i) {
    v.data[i] = std::fabs(v.data[i]);
    double gradient = 0.5 * g.data[i];
    adamM[i] = beta1 * m.data[i] + (1 - beta1) * gradient;
    adamV[i] = beta2 * v.data[i] + (1 - beta2) * gradient * gradient;
    adamP[i] = p.data[i] * (1 - lr * decay) - lr / bias1 * adamM[i] / (std::sqrt(adamV[i]) / std::sqrt(bias2) + eps);
    sgdP[i] = p.data[i] - lr * (gradient + decay * p.data[i]);
  }
  for (bool inPlace : {false, true}) {
    check("adamw", {&p, &g, &m, &v, &coefficient, &hyper}, {&newP, &newM, &newV}, "%0, %1, %2, %3, %4, %5",
          {adamP, adamM, adamV}, 1e-6, inPlace ? std::vector<int>{0, 2, 3} : std::vector<int>{});
    check("sgd", {&p, &g, &coefficient, &hyper}, {&newP}, "%0, %1, %2, %3", {sgdP}, 1e-6,
          inPlace ? std::vector<int>{0} : std::vector<int>{});
  }
  // If the coefficient is NaN, no bit changes, for any gradient.
  coefficient.data[0] = NAN;
  g.data[g.size() / 2] = NAN;
  auto kept = [](const Tensor &t) { return Reals(t.data.begin(), t.data.begin() + t.size()); };
  for (bool inPlace : {false, true}) {
    check("adamw", {&p, &g, &m, &v, &coefficient, &hyper}, {&newP, &newM, &newV}, "%0, %1, %2, %3, %4, %5",
          {kept(p), kept(m), kept(v)}, 0, inPlace ? std::vector<int>{0, 2, 3} : std::vector<int>{});
    check("sgd", {&p, &g, &coefficient, &hyper}, {&newP}, "%0, %1, %2, %3", {kept(p)}, 0,
          inPlace ? std::vector<int>{0} : std::vector<int>{});
  }
}

void rope(int64_t b, int64_t s, std::vector<int64_t> heads, int64_t d) {
  std::vector<int64_t> shape = {b, s};
  shape.insert(shape.end(), heads.begin(), heads.end());
  shape.push_back(d);
  Tensor x(shape), cosine({s, d / 2}), sine({s, d / 2}), y(shape);
  for (bool inverse : {false, true}) {
    Reals want(x.size());
    const int64_t rows = x.size() / d, perToken = rows / (b * s);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < d / 2; ++c) {
        int64_t at = r / perToken % s * (d / 2) + c;
        double co = cosine.data[at], si = inverse ? -sine.data[at] : sine.data[at];
        double u = x.data[r * d + c], w = x.data[r * d + d / 2 + c];
        want[r * d + c] = u * co - w * si;
        want[r * d + d / 2 + c] = w * co + u * si;
      }
    std::string format = std::string(inverse ? "inverse " : "") + "%0, %1, %2";
    check("rope", {&x, &cosine, &sine}, {&y}, format, {want}, 1e-6);
    check("rope", {&x, &cosine, &sine}, {&y}, format, {want}, 1e-6, {0});
  }
}
} // namespace

/// Compares loads and stores of bf16, in an embedding that copies its table, with the runtime's conversion: special
/// values, ties and random bits.
static void conversions(int64_t lanes, bool byInstruction) {
  const int64_t rows = 50, columns = 97; // rows end with a narrower vector
  std::vector<float> wide(rows * columns), back(rows * columns);
  const uint32_t special[] = {0,          0x80000000, 0x3f800000, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001,
                              0x7f800000, 0xff800000, 0x7f7fffff, 0x7f7f7fff, 0x7fc00000, 0x7f800001, 0xffc12345,
                              0x00800000, 0x007fffff, 0x00008000, 0x00018000, 0x80000001};
  for (size_t i = 0; i < wide.size(); ++i) {
    uint32_t bits = i < std::size(special) ? special[i] : uint32_t(generator());
    memcpy(&wide[i], &bits, 4);
  }
  std::vector<int32_t> ids(rows);
  for (int32_t i = 0; i < rows; ++i)
    ids[i] = i;
  std::vector<uint16_t> narrow(rows * columns);
  auto copy = [&](const char *from, const char *to, void *source, void *target) {
    std::string shape = "tensor<50x97x", in = shape + from + ">", out = shape + to + ">";
    jitOp("func.func @f(%0: " + in + ", %1: tensor<50xi32>) {\n  %r = pc.embedding %0, %1 : (" + in +
              ", tensor<50xi32>) -> " + out + "\n  return\n}",
          lanes, byInstruction)[0]
        .run({source, ids.data(), target});
  };
  copy("f32", "bf16", wide.data(), narrow.data());
  copy("bf16", "f32", narrow.data(), back.data());
  for (size_t i = 0; i < wide.size(); ++i) {
    uint16_t expected = pcrt::floatToBf16(wide[i]);
    // The instruction treats subnormal numbers as zero.
    bool flushed = byInstruction && std::fabs(wide[i]) < 0x1p-126f && (narrow[i] & 0x7fff) == 0;
    bool isNan = std::isnan(wide[i]) && std::isnan(pcrt::bf16ToFloat(narrow[i]));
    float exact = pcrt::bf16ToFloat(narrow[i]);
    if ((narrow[i] != expected && !flushed && !isNan) || memcmp(&back[i], &exact, 4) != 0) {
      printf("bf16%s of %a is %#x, not %#x; back: %a\n", byInstruction ? " by instruction" : "", wide[i], narrow[i],
             expected, back[i]);
      expect(false, "a conversion");
    }
  }
}

int main() {
  for (int64_t lanes : {8, 16})
    if (lanes <= hostLanes()) {
      conversions(lanes, false);
      if (__builtin_cpu_supports("avx512bf16"))
        conversions(lanes, true);
    }
  for (Sees sees : {Sees::causal, Sees::all}) {
    attention(2, 33, 33, 2, 3, 10, sees);
    attention(2, 5, 5, 2, 1, 64, sees);
    attention(2, 17, 17, 2, 1, 8, sees); // fewer than a block of queries, and no whole tiles of keys
    attention(1, 27, 20, 1, 2, 8, sees);
    for (int64_t length = 1; getenv("PC_LONG") && length <= 70; ++length)
      attention(1, length, length * 7 % 71, 1, 2, 1 + length % 20, sees);
    attention(1, 33, 50, 1, 2, 16, sees);
    attention(1, 50, 33, 1, 2, 17, sees);
  }
  for (bool bf16 : {false, true}) {
    attention(2, 33, 50, 1, 2, 16, Sees::counts, bf16);
    attention(1, 1, 1, 1, 1, 8, Sees::causal, bf16);
    attention(1, 32, 32, 1, 1, 80, Sees::causal, bf16);
    // Scores are up to +-150, so their rounding to f32 is visible in e^x.
    attention(1, 70, 70, 2, 2, 64, Sees::causal, bf16, 6);
  }
  attention(2, 33, 33, 2, 3, 10, Sees::causal, true);
  attention(1, 50, 33, 1, 2, 17, Sees::causal, true); // rows of d do not consist of pairs
  attention(1, 45, 77, 2, 1, 128, Sees::all, true);
  for (bool layerNorm : {true, false})
    for (auto [rows, columns] : {std::pair{1, 64}, {5, 10}, {33, 200}, {130, 129}, {70, 1}, {9, 3}})
      normGrad(rows, columns, layerNorm);
  embedding(50, 64, 7);
  embedding(5000, 10, 33); // whole rows, see Embedding.cpp
  embedding(96, 200, 64);
  optimizers({1});
  optimizers({5, 3});
  optimizers({2, 4096});
  optimizers({4097});
  rope(2, 5, {3, 2}, 64);
  rope(1, 33, {1}, 10);
  rope(2, 1, {2}, 2);
  rope(1, 3, {}, 48);
  return finishChecks();
}
