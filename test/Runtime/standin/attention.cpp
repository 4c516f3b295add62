//===- attention.cpp - The runtime's attention graphs on the stand-in -----===//
// Executes the graphs that the runtime builds for cuDNN on the stand-in, and compares with attention and its gradient
// in double precision: packed and separate layouts, grouped heads, causal or not, deterministic or not. Also checks
// that the stand-in exports every symbol of the runtime's tables.
//===----------------------------------------------------------------------===//
#include "Cuda.h"
#include "cuda/AttentionPlan.h"
#include "cuda/CublasLt.h"
#include "cuda/Nccl.h"
#include "standin/Numbers.h"

#include <cmath>
#include <dlfcn.h>

using namespace pcrt::cuda;
using pc::standin::fromBf16;
using pc::standin::toBf16;

namespace {

Cudnn library;
DnnHandle handle;
CUstream stream;

void testSymbols() {
  auto check = [](std::vector<pcrt::cuda::Symbol> symbols) {
    for (const Symbol &symbol : symbols) {
      *symbol.address = dlsym(RTLD_DEFAULT, symbol.name);
      expect(*symbol.address || !symbol.required, std::string("the stand-in has ") + symbol.name);
    }
  };
  static Driver driver;
  static CublasLt blas;
  static Nccl nccl;
  check(driver.symbols());
  check(blas.symbols());
  check(nccl.symbols());
  check(library.symbols());
}

/// A tensor (b, h, s, d) in a buffer of its own or a slice of a packed one.
struct View {
  uint16_t *data;
  const int64_t *strides;
  uint16_t &at(int64_t b, int64_t h, int64_t s, int64_t d) const {
    return data[b * strides[0] + h * strides[1] + s * strides[2] + d * strides[3]];
  }
  double get(int64_t b, int64_t h, int64_t s, int64_t d) const { return fromBf16(at(b, h, s, d)); }
};

struct Shape {
  int64_t batch, heads, keyHeads, queries, keys, width;
  bool causal, packed, deterministic;
};

struct Attention {
  const Shape &shape;
  pcrt_attention_desc desc{};
  View q, k, v, o, dO, dq, dk, dv;
  float *statistics, *dot, *accumulator;
  char *workspace;

  explicit Attention(const Shape &s) : shape(s) {
    desc.name = "test";
    desc.causal = s.causal;
    desc.dtype = PCRT_BF16;
    desc.batch = s.batch, desc.q_heads = s.heads, desc.kv_heads = s.keyHeads;
    desc.q_length = s.queries, desc.kv_length = s.keys, desc.head_dim = s.width;
    desc.scale = 1 / std::sqrt(static_cast<float>(s.width));
    int64_t all = s.heads + 2 * s.keyHeads;
    auto fill = [&](int64_t *strides, int64_t length, int64_t heads) {
      const int64_t made[] = {length * heads * s.width, s.width, heads * s.width, 1};
      memcpy(strides, made, sizeof made);
    };
    fill(desc.q, s.queries, s.packed ? all : s.heads);
    fill(desc.dq, s.queries, s.packed ? all : s.heads);
    for (int64_t *strides : {desc.k, desc.v, desc.dk, desc.dv})
      fill(strides, s.keys, s.packed ? all : s.keyHeads);
    fill(desc.o, s.queries, s.heads);
    fill(desc.d_o, s.queries, s.heads);
    auto inputs = [&](View &a, View &b, View &c, const int64_t *sa, const int64_t *sb, const int64_t *sc) {
      if (s.packed) {
        auto *base = deviceArray<uint16_t>(s.batch * s.queries * all * s.width);
        a = {base, sa}, b = {base + s.heads * s.width, sb}, c = {base + (s.heads + s.keyHeads) * s.width, sc};
        return;
      }
      a = {deviceArray<uint16_t>(s.batch * s.heads * s.queries * s.width), sa};
      b = {deviceArray<uint16_t>(s.batch * s.keyHeads * s.keys * s.width), sb};
      c = {deviceArray<uint16_t>(s.batch * s.keyHeads * s.keys * s.width), sc};
    };
    inputs(q, k, v, desc.q, desc.k, desc.v);
    inputs(dq, dk, dv, desc.dq, desc.dk, desc.dv);
    o = {deviceArray<uint16_t>(s.batch * s.heads * s.queries * s.width), desc.o};
    dO = {deviceArray<uint16_t>(s.batch * s.heads * s.queries * s.width), desc.d_o};
    statistics = deviceArray<float>(s.batch * s.heads * s.queries);
    dot = deviceArray<float>(s.batch * s.heads * s.queries);
    accumulator = deviceArray<float>(s.batch * s.heads * s.queries * s.width);
    workspace = deviceArray<char>(4096);
    unsigned seed = 1;
    auto draw = [&](const View &view, int64_t heads, int64_t length) {
      for (int64_t b = 0; b < s.batch; ++b)
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t i = 0; i < length; ++i)
            for (int64_t d = 0; d < s.width; ++d) {
              seed = seed * 1664525 + 1013904223;
              view.at(b, h, i, d) = toBf16(static_cast<float>(seed >> 8) / (1 << 23) - 1);
            }
    };
    draw(q, s.heads, s.queries);
    draw(k, s.keyHeads, s.keys);
    draw(v, s.keyHeads, s.keys);
    draw(dO, s.heads, s.queries);
  }

  void execute(bool backward) {
    desc.backward = backward;
    AttentionPlanner planner(library, handle);
    AttentionPlan plan;
    std::string error = planner.build(desc, shape.deterministic, 4096, &plan);
    if (!error.empty()) {
      fprintf(stderr, "error: no plan: %s\n", error.c_str());
      exit(1);
    }
    float minusInfinity = -INFINITY, one = 1;
    std::vector<int64_t> ids{
        AttentionQ, AttentionK, AttentionV, AttentionO, AttentionStatistics, AttentionScale, AttentionMinusInfinity};
    std::vector<void *> pointers{q.data, k.data, v.data, o.data, statistics, &desc.scale, &minusInfinity};
    if (backward) {
      ids.insert(ids.end(), {AttentionDO, AttentionDQ, AttentionDK, AttentionDV, AttentionDot, AttentionAccumulator,
                             AttentionOne});
      pointers.insert(pointers.end(), {dO.data, dq.data, dk.data, dv.data, dot, accumulator, &one});
    }
    DnnDescriptor pack;
    OK(library.cudnnBackendCreateDescriptor(dnn::VariantPack, &pack));
    OK(library.cudnnBackendSetAttribute(pack, dnn::PackIds, dnn::TypeInt64, int64_t(ids.size()), ids.data()));
    OK(library.cudnnBackendSetAttribute(pack, dnn::PackPointers, dnn::TypePointer, int64_t(pointers.size()),
                                        pointers.data()));
    void *scratch = workspace;
    OK(library.cudnnBackendSetAttribute(pack, dnn::PackWorkspace, dnn::TypePointer, 1, &scratch));
    OK(library.cudnnBackendFinalize(pack));
    if (library.cudnnBackendExecute(handle, plan.descriptor, pack)) {
      char text[200];
      library.cudnnGetLastErrorString(text, sizeof text);
      fprintf(stderr, "error: %s\n", text);
      exit(1);
    }
    OK(library.cudnnBackendDestroyDescriptor(pack));
    OK(library.cudnnBackendDestroyDescriptor(plan.descriptor));
    OK(cuStreamSynchronize(stream));
  }

  /// Returns the largest differences of O, dQ, dK and dV from the formulas in double precision.
  double worst() const {
    const Shape &s = shape;
    double worst = 0;
    auto compare = [&](double expected, double got) {
      worst = std::max(worst, std::isnan(got) ? 1e9 : std::fabs(expected - got) / std::max(1.0, std::fabs(expected)));
    };
    int64_t group = s.heads / s.keyHeads, n = s.keys;
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t kh = 0; kh < s.keyHeads; ++kh) {
        std::vector<double> sumK(n * s.width), sumV(n * s.width);
        for (int64_t h = kh * group; h < (kh + 1) * group; ++h)
          for (int64_t i = 0; i < s.queries; ++i) {
            std::vector<double> p(n), g(n);
            double largest = -INFINITY, total = 0, product = 0;
            for (int64_t j = 0; j < n; ++j) {
              p[j] = s.causal && j > i ? -INFINITY : 0;
              for (int64_t d = 0; d < s.width; ++d)
                p[j] += desc.scale * q.get(b, h, i, d) * k.get(b, kh, j, d);
              largest = std::max(largest, p[j]);
            }
            for (double &x : p)
              total += x = std::exp(x - largest);
            compare(largest + std::log(total), statistics[(b * s.heads + h) * s.queries + i]);
            for (double &x : p)
              x /= total;
            for (int64_t d = 0; d < s.width; ++d) {
              double out = 0;
              for (int64_t j = 0; j < n; ++j)
                out += p[j] * v.get(b, kh, j, d);
              compare(out, o.get(b, h, i, d));
              product += out * dO.get(b, h, i, d);
            }
            for (int64_t j = 0; j < n; ++j) {
              for (int64_t d = 0; d < s.width; ++d) {
                g[j] += dO.get(b, h, i, d) * v.get(b, kh, j, d);
                sumV[j * s.width + d] += p[j] * dO.get(b, h, i, d);
              }
              g[j] = p[j] * (g[j] - product) * desc.scale;
              for (int64_t d = 0; d < s.width; ++d)
                sumK[j * s.width + d] += g[j] * q.get(b, h, i, d);
            }
            for (int64_t d = 0; d < s.width; ++d) {
              double out = 0;
              for (int64_t j = 0; j < n; ++j)
                out += g[j] * k.get(b, kh, j, d);
              compare(out, dq.get(b, h, i, d));
            }
          }
        for (int64_t j = 0; j < n; ++j)
          for (int64_t d = 0; d < s.width; ++d) {
            compare(sumK[j * s.width + d], dk.get(b, kh, j, d));
            compare(sumV[j * s.width + d], dv.get(b, kh, j, d));
          }
      }
    return worst;
  }
};

} // namespace

int main() {
  useDevice(0);
  testSymbols();
  stream = makeStream();
  OK(library.cudnnCreate(&handle));
  OK(library.cudnnSetStream(handle, reinterpret_cast<Stream>(stream)));
  for (bool causal : {false, true})
    for (bool packed : {false, true})
      for (bool deterministic : {false, true})
        for (auto [heads, keyHeads] : {std::pair<int64_t, int64_t>{3, 3}, {4, 2}}) {
          Shape shape{2, heads, keyHeads, 17, packed || causal ? 17 : 9, 16, causal, packed, deterministic};
          Attention attention(shape);
          attention.execute(false);
          attention.execute(true);
          double worst = attention.worst();
          char text[128];
          snprintf(text, sizeof text, "causal %d packed %d deterministic %d heads %d/%d: off by %g", causal, packed,
                   deterministic, int(heads), int(keyHeads), worst);
          expect(worst <= 0.02, text);
        }
  // cuDNN does not support these shapes.
  Shape odd{1, 2, 2, 8, 8, 12, true, false, false};
  Attention attention(odd);
  AttentionPlanner planner(library, handle);
  AttentionPlan plan;
  CHECK(has(planner.build(attention.desc, false, 4096, &plan), "is not a multiple of 8"));
  CHECK(pc_standin_reports() == 0);
  return finishChecks();
}
