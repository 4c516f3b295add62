//===- conformance.cpp - A device's library calls compared with plain loops -===//
// usage: cuda-conformance [products] [attention] [agreement]
// One row for each shape, layout, dtype and epilogue that the runtime asks of cuBLASLt and cuDNN, on the device that
// the libraries of this machine (or the stand-in) provide. `agreement`, as two ranks: ranks that have products in
// common compute the same bits. Exit code 77 (skipped) if there is no device.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "base/Failure.h"
#include "base/Types.h"
#include "comm/Comm.h"
#include "cpu/PlainGemm.h"
#include "cuda/Attentions.h"
#include "cuda/Memory.h"
#include "cuda/Products.h"

#include <cmath>
#include <cstdio>
#include <cstring>

using namespace pcrt;
using namespace pcrt::cuda;

namespace {

void report(const std::string &row, double error, double allowed) {
  char text[160];
  snprintf(text, sizeof text, "%-72s error %.2g of %.2g", row.c_str(), error, allowed);
  if (expect(error <= allowed, text)) // false if the error is NaN
    printf("ok      %s\n", text);
}

/// Numbers in [-1, 1), the same on every run.
class Numbers {
public:
  float next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return float(int64_t(state >> 40) - (1 << 23)) / (1 << 23);
  }

private:
  uint64_t state = 7;
};

/// A tensor on the host, as f32 and as the device gets it.
struct Data {
  Data(int64_t count, int32_t dtype, Numbers *numbers) : dtype(dtype), values(count), bytes(count * width()) {
    for (float &value : values) {
      value = numbers ? numbers->next() : 0;
      if (dtype == PCRT_BF16)
        value = bf16ToFloat(floatToBf16(value));
    }
    toBytes();
  }
  int64_t width() const { return dtype == PCRT_BF16 ? 2 : 4; }
  void toBytes() {
    for (size_t i = 0; i < values.size(); ++i)
      if (dtype == PCRT_BF16)
        reinterpret_cast<uint16_t *>(bytes.data())[i] = floatToBf16(values[i]);
      else
        memcpy(bytes.data() + 4 * i, &values[i], 4);
  }
  void fromBytes() {
    for (size_t i = 0; i < values.size(); ++i)
      if (dtype == PCRT_BF16)
        values[i] = bf16ToFloat(reinterpret_cast<uint16_t *>(bytes.data())[i]);
      else
        memcpy(&values[i], bytes.data() + 4 * i, 4);
  }

  int32_t dtype;
  std::vector<float> values;
  std::vector<char> bytes;
};

/// A device and some of its memory, which is allocated from the bottom up.
class Bench {
public:
  Bench() : session(0), memory(session), staging(session), base(memory.allocate(64 << 20)) {}

  void *place(const Data &data) {
    void *at = base + used;
    used += (int64_t(data.bytes.size()) + 255) / 256 * 256;
    staging.write(at, data.bytes.data(), int64_t(data.bytes.size()));
    return at;
  }
  void *room(int64_t bytes) {
    void *at = base + used;
    used += (bytes + 255) / 256 * 256;
    return at;
  }
  void fetch(Data &data, const void *at) {
    staging.read(data.bytes.data(), at, int64_t(data.bytes.size()));
    data.fromBytes();
  }
  void forget() { used = 0; }

  Session session;
  DeviceArena memory;
  Staging staging;
  char *base;
  int64_t used = 0;
};

/// The largest difference, against the size of the numbers.
double difference(const std::vector<float> &got, const std::vector<float> &wanted) {
  double most = 0, scale = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    scale = std::max(scale, std::fabs(double(wanted[i])));
    double apart = std::fabs(double(got[i]) - double(wanted[i]));
    most = apart <= most ? most : apart; // keeps a NaN
  }
  return most / std::max(scale, 1e-30);
}

//===----------------------------------------------------------------------===//

/// A product to check; each row is one name in the output.
struct ProductRow {
  const char *name;
  int64_t batch, m, n, k;
  bool aTransposed, bTransposed;
  int32_t in, out;
  bool accumulate;
  int32_t epilogue;
};

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double geluDerivative(double x) { return (gelu(x + 1e-4) - gelu(x - 1e-4)) / 2e-4; }

void checkProduct(Bench &bench, const ProductRow &row) {
  pcrt_gemm_desc d{};
  d.name = row.name;
  d.batch = row.batch, d.m = row.m, d.n = row.n, d.k = row.k;
  d.a_batch_stride = row.m * row.k, d.a_m_stride = row.aTransposed ? 1 : row.k,
  d.a_k_stride = row.aTransposed ? row.m : 1;
  d.b_batch_stride = row.k * row.n, d.b_k_stride = row.bTransposed ? 1 : row.n,
  d.b_n_stride = row.bTransposed ? row.k : 1;
  d.c_batch_stride = row.m * row.n, d.c_m_stride = row.n, d.c_n_stride = 1;
  d.a_dtype = d.b_dtype = row.in, d.c_dtype = row.out;
  d.accumulate = row.accumulate, d.epilogue = row.epilogue;
  pcrt_program program{};
  program.num_gemms = 1;
  program.gemms = &d;
  program.workspace_bytes = 4 << 20;
  Numbers numbers;
  Data a(row.batch * row.m * row.k, row.in, &numbers), b(row.batch * row.k * row.n, row.in, &numbers);
  Data c(row.batch * row.m * row.n, row.out, &numbers), bias(row.n, row.out, &numbers), aux = c;
  bool gradient = row.epilogue == PCRT_EPILOGUE_BIAS_GRAD;
  bench.forget();
  ProductCall call{0, bench.place(a), bench.place(b), bench.place(c), nullptr, nullptr};
  void *biasAt = bench.place(bias), *auxAt = bench.place(aux);
  if (row.epilogue == PCRT_EPILOGUE_BIAS || row.epilogue == PCRT_EPILOGUE_GELU_BIAS || gradient)
    call.bias = biasAt;
  if (row.epilogue == PCRT_EPILOGUE_GELU_BIAS || row.epilogue == PCRT_EPILOGUE_GELU_GRAD)
    call.aux = auxAt;
  void *workspace = bench.room(program.workspace_bytes);

  Data wanted = c, wantedBias = bias, wantedAux = aux;
  for (int64_t batch = 0; batch < row.batch; ++batch)
    for (int64_t m = 0; m < row.m; ++m)
      for (int64_t n = 0; n < row.n; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < row.k; ++k)
          sum += double(a.values[batch * d.a_batch_stride + m * d.a_m_stride + k * d.a_k_stride]) *
                 b.values[batch * d.b_batch_stride + k * d.b_k_stride + n * d.b_n_stride];
        int64_t i = batch * d.c_batch_stride + m * row.n + n;
        float &at = wanted.values[i];
        sum += (row.accumulate ? double(at) : 0) + (call.bias && !gradient ? double(bias.values[n]) : 0);
        if (row.epilogue == PCRT_EPILOGUE_GELU_BIAS)
          wantedAux.values[i] = float(sum);
        at = float(row.epilogue == PCRT_EPILOGUE_GELU_BIAS   ? gelu(sum)
                   : row.epilogue == PCRT_EPILOGUE_GELU_GRAD ? sum * geluDerivative(aux.values[i])
                                                             : sum);
      }
  for (int64_t n = 0; gradient && n < row.n; ++n) {
    double sum = 0;
    for (int64_t k = 0; k < row.k; ++k)
      sum += b.values[k * d.b_k_stride + n * d.b_n_stride];
    wantedBias.values[n] = float(sum);
  }
  Products products(bench.session, program);
  products.prepare({call}, workspace, [] {});
  bench.staging.write(call.c, c.bytes.data(), int64_t(c.bytes.size())); // timing added to it
  if (BlasStatus status = products.run(call))
    fail(PCRT_INTERNAL, products.describe(status));
  bench.session.synchronize();
  bench.fetch(c, call.c);
  std::string text = std::string(row.name) + ", " + std::to_string(row.batch) + " x " + std::to_string(row.m) + " " +
                     std::to_string(row.n) + " " + std::to_string(row.k) + (row.in == PCRT_BF16 ? " bf16" : " f32") +
                     (row.out == PCRT_BF16 ? " to bf16" : " to f32") + (row.accumulate ? ", added" : "");
  double allowed = row.out == PCRT_BF16 ? 8e-3 : 2e-5;
  report(text, difference(c.values, wanted.values), allowed);
  if (row.epilogue == PCRT_EPILOGUE_GELU_BIAS) {
    bench.fetch(aux, auxAt);
    report(text + ": aux", difference(aux.values, wantedAux.values), allowed);
  }
  if (gradient) {
    bench.fetch(bias, biasAt);
    report(text + ": bias", difference(bias.values, wantedBias.values), allowed);
  }
}

void checkProducts(Bench &bench) {
  constexpr int32_t f = PCRT_F32, h = PCRT_BF16, none = PCRT_EPILOGUE_NONE, bias = PCRT_EPILOGUE_BIAS;
  constexpr int32_t gelu = PCRT_EPILOGUE_GELU_BIAS, geluGrad = PCRT_EPILOGUE_GELU_GRAD,
                    biasGrad = PCRT_EPILOGUE_BIAS_GRAD;
  const ProductRow table[] = {
      {"a b", 1, 128, 96, 64, false, false, f, f, false, none},
      {"a b^T", 1, 64, 128, 96, false, true, f, f, false, none},
      {"a^T b", 1, 96, 64, 128, true, false, f, f, false, none},
      {"a^T b^T", 1, 64, 64, 64, true, true, f, f, false, none},
      {"a b + bias", 1, 64, 96, 32, false, false, f, f, false, bias},
      {"a^T b", 1, 96, 64, 128, true, false, f, f, true, none},
      {"batches", 6, 32, 48, 16, false, true, f, f, false, none},
      {"one row", 1, 1, 64, 48, false, false, f, f, false, none},
      {"one column", 1, 64, 1, 48, false, false, f, f, false, none},
      {"odd sizes", 1, 37, 41, 43, false, false, f, f, false, none},
      {"a b", 1, 128, 96, 64, false, false, h, h, false, none},
      {"a b^T", 1, 64, 128, 96, false, true, h, h, false, none},
      {"a b + bias", 1, 64, 96, 32, false, false, h, h, false, bias},
      {"a^T b", 1, 96, 64, 128, true, false, h, f, false, none},
      {"a^T b", 1, 96, 64, 128, true, false, h, f, true, none},
      {"batches", 4, 32, 64, 32, false, true, h, h, false, none},
      {"gelu(a b + bias)", 1, 64, 96, 32, false, false, f, f, false, gelu},
      {"gelu(a b + bias)", 1, 64, 96, 32, false, false, h, h, false, gelu},
      {"a b^T gelu'", 1, 64, 96, 32, false, true, f, f, false, geluGrad},
      {"a b^T gelu'", 1, 64, 96, 32, false, true, h, h, false, geluGrad},
      {"a^T b, sums of b", 1, 96, 64, 128, true, false, f, f, false, biasGrad},
      {"a^T b, sums of b", 1, 96, 64, 128, true, false, h, f, false, biasGrad},
      {"a^T b, sums of b", 1, 96, 64, 128, true, false, h, f, true, biasGrad},
  };
  for (const ProductRow &row : table)
    checkProduct(bench, row);
}

//===----------------------------------------------------------------------===//

/// An attention to check; each row is one name in the output.
struct AttentionRow {
  const char *name;
  int64_t batch, heads, keyHeads, sequence, headDim;
  bool causal, deterministic;
};

void checkAttention(Bench &bench, const AttentionRow &row) {
  int64_t B = row.batch, H = row.heads, G = row.keyHeads, S = row.sequence, D = row.headDim, packed = H + 2 * G;
  pcrt_attention_desc forward{};
  forward.name = row.name;
  forward.causal = row.causal;
  forward.dtype = PCRT_BF16;
  forward.batch = B, forward.q_heads = H, forward.kv_heads = G, forward.q_length = forward.kv_length = S;
  forward.head_dim = D;
  forward.scale = 1 / std::sqrt(float(D));
  auto strides = [&](int64_t *to, int64_t heads) { to[0] = S * heads * D, to[1] = D, to[2] = heads * D, to[3] = 1; };
  for (int64_t *to : {forward.q, forward.k, forward.v, forward.dq, forward.dk, forward.dv})
    strides(to, packed);
  for (int64_t *to : {forward.o, forward.d_o})
    strides(to, H);
  forward.workspace_bytes = 16 << 20;
  pcrt_attention_desc descs[2] = {forward, forward};
  descs[1].backward = 1;
  pcrt_program program{};
  program.num_attentions = 2;
  program.attentions = descs;

  Numbers numbers;
  Data qkv(B * S * packed * D, PCRT_BF16, &numbers), dout(B * S * H * D, PCRT_BF16, &numbers);
  Data out(B * S * H * D, PCRT_BF16, nullptr), statistics(B * H * S, PCRT_F32, nullptr), dqkv = qkv;
  // Computes the expected results in double precision.
  std::vector<float> wantedOut(out.values.size()), wantedStatistics(statistics.values.size());
  std::vector<double> gradient(qkv.values.size());
  auto at = [&](int64_t b, int64_t head, int64_t s) { return ((b * S + s) * packed + head) * D; };
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < S; ++i) {
        int64_t key = H + h / (H / G), value = key + G, last = row.causal ? i : S - 1;
        std::vector<double> p(last + 1), o(D), dp(last + 1);
        double largest = -INFINITY, sum = 0, dot = 0;
        for (int64_t j = 0; j <= last; ++j) {
          for (int64_t d = 0; d < D; ++d)
            p[j] += double(qkv.values[at(b, h, i) + d]) * qkv.values[at(b, key, j) + d];
          p[j] *= forward.scale;
          largest = std::max(largest, p[j]);
        }
        for (double &x : p)
          sum += x = std::exp(x - largest);
        wantedStatistics[(b * H + h) * S + i] = float(largest + std::log(sum));
        const float *g = &dout.values[((b * S + i) * H + h) * D];
        for (int64_t j = 0; j <= last; ++j) {
          p[j] /= sum;
          for (int64_t d = 0; d < D; ++d) {
            o[d] += p[j] * qkv.values[at(b, value, j) + d];
            dp[j] += double(g[d]) * qkv.values[at(b, value, j) + d];
          }
        }
        for (int64_t d = 0; d < D; ++d) {
          wantedOut[((b * S + i) * H + h) * D + d] = float(o[d]);
          dot += o[d] * g[d];
        }
        for (int64_t j = 0; j <= last; ++j) {
          double ds = p[j] * (dp[j] - dot) * forward.scale;
          for (int64_t d = 0; d < D; ++d) {
            gradient[at(b, h, i) + d] += ds * qkv.values[at(b, key, j) + d];
            gradient[at(b, key, j) + d] += ds * qkv.values[at(b, h, i) + d];
            gradient[at(b, value, j) + d] += p[j] * g[d];
          }
        }
      }
  std::vector<float> wantedGradient(gradient.begin(), gradient.end());

  bench.forget();
  auto *q = static_cast<char *>(bench.place(qkv)), *dq = static_cast<char *>(bench.place(dqkv));
  void *o = bench.place(out), *l = bench.place(statistics), *g = bench.place(dout);
  void *sums = row.deterministic ? nullptr : bench.room(4 * B * H * S * D), *dots = bench.room(4 * B * H * S);
  void *workspace = bench.room(forward.workspace_bytes);
  char *k = q + 2 * H * D, *v = k + 2 * G * D, *dk = dq + 2 * H * D, *dv = dk + 2 * G * D;
  void *forwardArgs[] = {q, k, v, o, l, workspace};
  void *backwardArgs[] = {q, k, v, o, l, g, dq, dk, dv, sums, dots, workspace};
  Attentions attentions(bench.session, program, nullptr);
  attentions.prepare(0, forwardArgs);
  attentions.prepare(1, backwardArgs);
  for (const std::string &problem : {attentions.run(0, forwardArgs), attentions.run(1, backwardArgs)})
    if (!problem.empty())
      fail(PCRT_INTERNAL, problem);
  bench.session.synchronize();
  bench.fetch(out, o);
  bench.fetch(statistics, l);
  bench.fetch(dqkv, dq);
  std::string text = std::string(row.name) + ", " + std::to_string(B) + " x " + std::to_string(H) + "/" +
                     std::to_string(G) + " heads of " + std::to_string(D) + ", " + std::to_string(S) + " positions" +
                     (row.causal ? ", causal" : "") + (row.deterministic ? ", deterministic" : "");
  report(text + ": output", difference(out.values, wantedOut), 2e-2);
  report(text + ": statistics", difference(statistics.values, wantedStatistics), 2e-3);
  report(text + ": gradient", difference(dqkv.values, wantedGradient), 3e-2);
}

void checkAttentions(Bench &bench) {
  const AttentionRow table[] = {
      {"plain", 1, 2, 2, 64, 32, false, false},      {"masked", 2, 2, 2, 64, 64, true, false},
      {"grouped", 1, 4, 2, 64, 64, true, false},     {"one order", 1, 2, 2, 64, 64, true, true},
      {"odd length", 1, 1, 1, 100, 64, true, false},
  };
  for (const AttentionRow &row : table)
    checkAttention(bench, row);
}

/// Rank r has products r and r + 1 of three, as stages of a pipeline do, so both ranks have the middle one.
void checkAgreement(Bench &bench, Comm &comm) {
  pcrt_gemm_desc descs[2] = {};
  for (int i = 0; i < 2; ++i) {
    pcrt_gemm_desc &d = descs[i];
    d.name = i == comm.rank() ? "own" : "shared";
    d.batch = 1, d.m = 32, d.n = 48, d.k = i == comm.rank() ? 96 : 1000;
    d.a_m_stride = d.k, d.a_k_stride = 1, d.b_k_stride = d.n, d.b_n_stride = 1, d.c_m_stride = d.n, d.c_n_stride = 1;
    d.a_dtype = d.b_dtype = d.c_dtype = PCRT_F32;
  }
  pcrt_program program{};
  program.num_gemms = 2;
  program.gemms = descs;
  program.workspace_bytes = 4 << 20;
  Numbers numbers;
  Data a(32 * 1000, PCRT_F32, &numbers), b(48 * 1000, PCRT_F32, &numbers), c(32 * 48, PCRT_F32, nullptr);
  std::vector<ProductCall> calls;
  for (int i = 0; i < 2; ++i)
    calls.push_back({i, bench.place(a), bench.place(b), bench.place(c), nullptr, nullptr});
  Products products(bench.session, program);
  products.prepare(calls, bench.room(program.workspace_bytes), [] {});
  if (products.agree(comm) != PCRT_OK)
    fail(PCRT_INTERNAL, comm.error());
  const ProductCall &shared = calls[1 - comm.rank()];
  products.run(shared);
  bench.session.synchronize();
  bench.fetch(c, shared.c);
  std::vector<char> all(2 * c.bytes.size());
  if (comm.allGatherBytes(c.bytes.data(), int64_t(c.bytes.size()), all.data()) != PCRT_OK)
    fail(PCRT_INTERNAL, comm.error());
  bool same = !memcmp(all.data(), all.data() + c.bytes.size(), c.bytes.size());
  if (expect(same, "two ranks with one product in common compute it alike"))
    printf("ok      two ranks with one product in common compute it alike\n");
}

} // namespace

int main(int argc, char **argv) {
  auto wanted = [&](const char *what) {
    for (int i = 1; i < argc; ++i)
      if (!strcmp(argv[i], what))
        return true;
    return argc == 1;
  };
  std::unique_ptr<Bench> bench;
  try {
    bench = std::make_unique<Bench>();
  } catch (const Failure &failure) {
    printf("skipped: %s\n", failure.message.c_str());
    return 77;
  }
  printf("%s\n", bench->session.name.c_str());
  try {
    if (wanted("products"))
      checkProducts(*bench);
    if (wanted("attention"))
      checkAttentions(*bench);
    if (argc > 1 && wanted("agreement")) {
      std::string error;
      pcrt_status status = runRanks(2, true, [&](Comm &comm) { return checkAgreement(*bench, comm), PCRT_OK; }, &error);
      if (status != PCRT_OK)
        fail(status, error);
    }
  } catch (const Failure &failure) {
    printf("FAILED: %s\n", failure.message.c_str());
    return failure.status;
  }
  return finishChecks();
}
