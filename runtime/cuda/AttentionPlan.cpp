//===- AttentionPlan.cpp - Attention as a graph for cuDNN -----------------===//
// Builds the forward and backward graphs in the form that cuDNN's engines for fused attention match as a whole: two
// products around a softmax, with scale, causal mask and log-sum-exp. Grouped heads are reductions over the query heads
// that share a key head.
//===----------------------------------------------------------------------===//
#include "cuda/AttentionPlan.h"

#include <algorithm>
#include <array>
#include <vector>

using namespace pcrt::cuda;

namespace {

using Dims4 = std::array<int64_t, 4>;

/// Creates descriptors and keeps the first error, after which all calls do nothing. The destructor destroys all
/// descriptors except released ones.
class Builder {
public:
  explicit Builder(const Cudnn &dnn) : dnn(dnn) {}
  ~Builder() {
    for (auto it = made.rbegin(); it != made.rend(); ++it)
      dnn.cudnnBackendDestroyDescriptor(*it);
  }

  DnnDescriptor make(int type) {
    DnnDescriptor descriptor = nullptr;
    note(dnn.cudnnBackendCreateDescriptor(type, &descriptor));
    if (descriptor)
      made.push_back(descriptor);
    return descriptor;
  }
  void set(DnnDescriptor descriptor, int attribute, int type, int64_t count, const void *elements) {
    if (error.empty())
      note(dnn.cudnnBackendSetAttribute(descriptor, attribute, type, count, elements));
  }
  template <typename T> void set(DnnDescriptor descriptor, int attribute, int type, T value) {
    set(descriptor, attribute, type, 1, &value);
  }
  void set(DnnDescriptor descriptor, int attribute, DnnDescriptor value) {
    set(descriptor, attribute, dnn::TypeDescriptor, 1, &value);
  }
  DnnDescriptor finalize(DnnDescriptor descriptor) {
    if (error.empty())
      note(dnn.cudnnBackendFinalize(descriptor));
    return descriptor;
  }
  void release(DnnDescriptor descriptor) { std::erase(made, descriptor); }
  void note(DnnStatus status) {
    if (!status || !error.empty())
      return;
    char text[1024] = "";
    dnn.cudnnGetLastErrorString(text, sizeof text);
    error = std::string(dnn.cudnnGetErrorString(status)) + (text[0] ? ": " : "") + text;
  }

  std::string error;

protected:
  const Cudnn &dnn;

private:
  std::vector<DnnDescriptor> made;
};

/// The operations of attention. Tensors have dims (batch, head, position, position or head dim) in any layout.
class AttentionGraph : public Builder {
public:
  AttentionGraph(const Cudnn &dnn, const pcrt_attention_desc &desc) : Builder(dnn), d(desc) {}

  std::vector<DnnDescriptor> operations;

  void forward() {
    DnnDescriptor s = maskedScores(false);
    DnnDescriptor largest = row(), centered = scores(), e = scores(), sum = row(), logarithm = row(),
                  p = scores(dnn::Bf16);
    reduce(dnn::ReduceMax, s, largest);
    pointwise(dnn::Sub, s, centered, largest);
    pointwise(dnn::Exp, centered, e);
    reduce(dnn::ReduceAdd, e, sum);
    pointwise(dnn::Log, sum, logarithm);
    pointwise(dnn::Add, largest, statistics(), logarithm);
    pointwise(dnn::Div, e, p, sum);
    matmul(p, real(AttentionV, keyDims(), d.v), real(AttentionO, queryDims(), d.o));
  }

  void backward(bool deterministic) {
    // The dot product of dO and O, row by row.
    DnnDescriptor dOut = real(AttentionDO, queryDims(), d.d_o),
                  dot = tensor(rowDims(), rowStrides(), dnn::F32, AttentionDot);
    DnnDescriptor product = virtualTensor(queryDims(), contiguous(queryDims()), dnn::F32), sum = row();
    pointwise(dnn::Mul, dOut, product, real(AttentionO, queryDims(), d.o));
    reduce(dnn::ReduceAdd, product, sum);
    pointwise(dnn::Mul, sum, dot, value(AttentionOne));
    // Computes p from the scores and their log-sum-exp.
    DnnDescriptor s = maskedScores(true), p = scores();
    pointwise(dnn::Exp, s, p);
    perKeyHead(transposed(p), dOut, real(AttentionDV, keyDims(), d.dv));
    // The gradient of the scores.
    DnnDescriptor dp = scores(), centered = scores(), ds = scores(), scaled = scores();
    matmul(dOut, real(AttentionV, transposedKeyDims(), swapLast(d.v)), dp);
    pointwise(dnn::Sub, dp, centered, dot);
    pointwise(dnn::Mul, centered, ds, p);
    pointwise(dnn::Mul, ds, scaled, value(AttentionScale));
    perKeyHead(transposed(scaled), query(), real(AttentionDK, keyDims(), d.dk));
    DnnDescriptor k = virtualTensor(keyDims(), strides(d.k), dnn::F32), dq = real(AttentionDQ, queryDims(), d.dq);
    reshape(keyTransposed(), k);
    if (deterministic)
      return matmul(scaled, k, dq);
    DnnDescriptor accumulator = tensor(queryDims(), contiguous(queryDims()), dnn::F32, AttentionAccumulator);
    matmul(scaled, k, accumulator);
    pointwise(dnn::Identity, accumulator, dq);
  }

private:
  Dims4 queryDims() const { return {d.batch, d.q_heads, d.q_length, d.head_dim}; }
  Dims4 keyDims() const { return {d.batch, d.kv_heads, d.kv_length, d.head_dim}; }
  Dims4 transposedKeyDims() const { return {d.batch, d.kv_heads, d.head_dim, d.kv_length}; }
  Dims4 scoreDims() const { return {d.batch, d.q_heads, d.q_length, d.kv_length}; }
  Dims4 rowDims() const { return {d.batch, d.q_heads, d.q_length, 1}; }
  Dims4 rowStrides() const { return contiguous(rowDims()); }
  static Dims4 contiguous(const Dims4 &dims) { return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}; }
  static Dims4 strides(const int64_t *s) { return {s[0], s[1], s[2], s[3]}; }
  static Dims4 swapLast(const int64_t *s) { return {s[0], s[1], s[3], s[2]}; }

  DnnDescriptor tensor(const Dims4 &dims, const Dims4 &strides, int type, int64_t id, bool isVirtual = false,
                       bool byValue = false) {
    DnnDescriptor made = make(dnn::Tensor);
    set(made, dnn::TensorType, dnn::TypeDataType, type);
    set(made, dnn::TensorDims, dnn::TypeInt64, 4, dims.data());
    set(made, dnn::TensorStrides, dnn::TypeInt64, 4, strides.data());
    set(made, dnn::TensorId, dnn::TypeInt64, id);
    set(made, dnn::TensorAlignment, dnn::TypeInt64, int64_t(16));
    if (isVirtual)
      set(made, dnn::TensorIsVirtual, dnn::TypeBoolean, isVirtual);
    if (byValue)
      set(made, dnn::TensorIsByValue, dnn::TypeBoolean, byValue);
    return finalize(made);
  }
  DnnDescriptor virtualTensor(const Dims4 &dims, const Dims4 &strides, int type) {
    return tensor(dims, strides, type, nextId++, true);
  }
  /// Creates the descriptor of a tensor in memory, once per id.
  DnnDescriptor once(DnnDescriptor &known, const Dims4 &dims, const Dims4 &strides, int type, int64_t id,
                     bool byValue = false) {
    if (!known)
      known = tensor(dims, strides, type, id, false, byValue);
    return known;
  }
  DnnDescriptor real(int64_t id, const Dims4 &dims, const int64_t *s) { return real(id, dims, strides(s)); }
  DnnDescriptor real(int64_t id, const Dims4 &dims, const Dims4 &s) { return once(known[id], dims, s, dnn::Bf16, id); }
  DnnDescriptor query() { return real(AttentionQ, queryDims(), d.q); }
  DnnDescriptor keyTransposed() { return real(AttentionK, transposedKeyDims(), swapLast(d.k)); }
  DnnDescriptor statistics() {
    return once(known[AttentionStatistics], rowDims(), rowStrides(), dnn::F32, AttentionStatistics);
  }
  DnnDescriptor value(int64_t id) { return once(known[id], {1, 1, 1, 1}, {1, 1, 1, 1}, dnn::F32, id, true); }
  DnnDescriptor scores(int type = dnn::F32) { return virtualTensor(scoreDims(), contiguous(scoreDims()), type); }
  DnnDescriptor row() { return virtualTensor(rowDims(), rowStrides(), dnn::F32); }

  void pointwise(int mode, DnnDescriptor x, DnnDescriptor y, DnnDescriptor b = nullptr, DnnDescriptor t = nullptr,
                 int precision = dnn::F32, int64_t axis = -1) {
    DnnDescriptor math = make(dnn::Pointwise);
    set(math, dnn::PointwiseMode, dnn::TypePointwiseMode, mode);
    set(math, dnn::PointwisePrecision, dnn::TypeDataType, precision);
    if (axis >= 0)
      set(math, dnn::PointwiseAxis, dnn::TypeInt64, axis);
    finalize(math);
    DnnDescriptor op = make(dnn::PointwiseOp);
    set(op, dnn::PointwiseOpDesc, math);
    set(op, dnn::PointwiseOpX, x);
    if (b)
      set(op, dnn::PointwiseOpB, b);
    if (t)
      set(op, dnn::PointwiseOpT, t);
    set(op, dnn::PointwiseOpY, y);
    operations.push_back(finalize(op));
  }
  void matmul(DnnDescriptor a, DnnDescriptor b, DnnDescriptor c) {
    DnnDescriptor math = make(dnn::Matmul);
    set(math, dnn::MatmulCompute, dnn::TypeDataType, int(dnn::F32));
    finalize(math);
    DnnDescriptor op = make(dnn::MatmulOp);
    set(op, dnn::MatmulOpA, a);
    set(op, dnn::MatmulOpB, b);
    set(op, dnn::MatmulOpC, c);
    set(op, dnn::MatmulOpDesc, math);
    operations.push_back(finalize(op));
  }
  void reduce(int how, DnnDescriptor x, DnnDescriptor y) {
    DnnDescriptor math = make(dnn::Reduction);
    set(math, dnn::ReductionCompute, dnn::TypeDataType, int(dnn::F32));
    set(math, dnn::ReductionOperator, dnn::TypeReduction, how);
    finalize(math);
    DnnDescriptor op = make(dnn::ReductionOp);
    set(op, dnn::ReductionOpDesc, math);
    set(op, dnn::ReductionOpX, x);
    set(op, dnn::ReductionOpY, y);
    operations.push_back(finalize(op));
  }
  void reshape(DnnDescriptor x, DnnDescriptor y) {
    DnnDescriptor op = make(dnn::ReshapeOp);
    set(op, dnn::ReshapeOpX, x);
    set(op, dnn::ReshapeOpY, y);
    operations.push_back(finalize(op));
  }

  /// Computes q k^T scale, minus the statistics with `lessStatistics`, with -inf above the diagonal if the attention is
  /// causal.
  DnnDescriptor maskedScores(bool lessStatistics) {
    DnnDescriptor raw = scores(), s = scores();
    matmul(query(), keyTransposed(), raw);
    pointwise(dnn::Mul, raw, s, value(AttentionScale));
    if (lessStatistics) {
      DnnDescriptor centered = scores();
      pointwise(dnn::Sub, s, centered, statistics());
      s = centered;
    }
    if (!d.causal)
      return s;
    DnnDescriptor rows = scores(dnn::I32), columns = scores(dnn::I32), below = scores(dnn::Bool), masked = scores();
    pointwise(dnn::GenIndex, s, rows, nullptr, nullptr, dnn::F32, 2);
    pointwise(dnn::GenIndex, s, columns, nullptr, nullptr, dnn::F32, 3);
    pointwise(dnn::CmpGe, rows, below, columns, nullptr, dnn::Bool);
    pointwise(dnn::Select, s, masked, value(AttentionMinusInfinity), below);
    return masked;
  }
  DnnDescriptor transposed(DnnDescriptor p) {
    int64_t queries = d.q_length, keys = d.kv_length;
    DnnDescriptor t = virtualTensor({d.batch, d.q_heads, keys, queries},
                                    {d.q_heads * queries * keys, queries * keys, 1, keys}, dnn::Bf16);
    reshape(p, t);
    return t;
  }
  /// a b, added over the query heads that share a key head.
  void perKeyHead(DnnDescriptor a, DnnDescriptor b, DnnDescriptor out) {
    if (d.q_heads == d.kv_heads)
      return matmul(a, b, out);
    Dims4 dims = {d.batch, d.q_heads, d.kv_length, d.head_dim};
    DnnDescriptor each = virtualTensor(dims, contiguous(dims), dnn::Bf16);
    matmul(a, b, each);
    reduce(dnn::ReduceAdd, each, out);
  }

  const pcrt_attention_desc &d;
  DnnDescriptor known[AttentionOne + 1] = {};
  int64_t nextId = 100;
};

} // namespace

AttentionPlanner::AttentionPlanner(const Cudnn &dnn, const std::string &json) : dnn(dnn) {
  // Errors show when the descriptor is used.
  if (dnn.cudnnBackendCreateDescriptor(dnn::DeviceProperties, &device) == 0)
    dnn.cudnnBackendSetAttribute(device, dnn::DeviceJson, dnn::TypeChar, int64_t(json.size()), json.data());
  if (device)
    dnn.cudnnBackendFinalize(device);
}

AttentionPlanner::~AttentionPlanner() {
  if (device)
    dnn.cudnnBackendDestroyDescriptor(device);
}

std::string AttentionPlanner::build(const pcrt_attention_desc &desc, bool deterministic, int64_t mostWorkspace,
                                    AttentionPlan *plan) {
  if (desc.dtype != PCRT_BF16)
    return "only bf16 is supported";
  AttentionGraph graph(dnn, desc);
  if (desc.backward)
    graph.backward(deterministic);
  else
    graph.forward();
  DnnDescriptor operations = graph.make(dnn::OperationGraph);
  graph.set(operations, dnn::GraphOps, dnn::TypeDescriptor, int64_t(graph.operations.size()), graph.operations.data());
  if (handle)
    graph.set(operations, dnn::GraphHandle, dnn::TypeHandle, handle);
  graph.finalize(operations);
  DnnDescriptor heuristic = graph.make(dnn::EngineHeuristic);
  graph.set(heuristic, dnn::HeuristicGraph, operations);
  graph.set(heuristic, dnn::HeuristicMode, dnn::TypeHeuristicMode, int(dnn::HeuristicA));
  if (device)
    graph.set(heuristic, dnn::HeuristicDevice, device);
  graph.finalize(heuristic);
  int64_t offered = 0, count = 0;
  if (graph.error.empty())
    graph.note(
        dnn.cudnnBackendGetAttribute(heuristic, dnn::HeuristicResults, dnn::TypeDescriptor, 0, &offered, nullptr));
  if (!graph.error.empty())
    return graph.error;
  std::vector<DnnDescriptor> configs;
  for (int64_t i = 0; i < std::min<int64_t>(offered, 8); ++i)
    configs.push_back(graph.make(dnn::EngineConfig));
  if (!configs.empty())
    graph.note(dnn.cudnnBackendGetAttribute(heuristic, dnn::HeuristicResults, dnn::TypeDescriptor,
                                            int64_t(configs.size()), &count, configs.data()));
  if (!graph.error.empty())
    return graph.error;
  if (!count)
    return "no engine supports it";
  // The first configuration is the library's choice; the others are tried if it gives no plan.
  std::string problem;
  for (int64_t i = 0; i < count; ++i) {
    Builder attempt(dnn);
    DnnDescriptor made = attempt.make(dnn::ExecutionPlan);
    attempt.set(made, dnn::PlanConfig, configs[i]);
    if (handle)
      attempt.set(made, dnn::PlanHandle, dnn::TypeHandle, handle);
    if (device)
      attempt.set(made, dnn::PlanDevice, device);
    attempt.finalize(made);
    int64_t bytes = 0, one = 0;
    if (attempt.error.empty())
      attempt.note(dnn.cudnnBackendGetAttribute(made, dnn::PlanWorkspace, dnn::TypeInt64, 1, &one, &bytes));
    if (attempt.error.empty() && mostWorkspace >= 0 && bytes > mostWorkspace)
      attempt.error = "it needs a workspace of " + std::to_string(bytes) + " bytes, but there are only " +
                      std::to_string(mostWorkspace);
    if (attempt.error.empty()) {
      attempt.release(made);
      *plan = {made, bytes};
      return "";
    }
    if (problem.empty())
      problem = attempt.error;
  }
  return problem;
}

std::string pcrt::cuda::deviceProperties(int arch) {
  struct Kind {
    int arch;
    const char *name;
    int multiprocessors, clock, memoryClock;
    int64_t cache;
    int sharedOptin;
    int64_t memory;
  };
  static const Kind kinds[] = {
      {80, "NVIDIA A100-SXM4-80GB", 108, 1410000, 1593000, 40 << 20, 166912, int64_t(80) << 30},
      {90, "NVIDIA H200", 132, 1980000, 3201000, 60 << 20, 232448, 150754820096},
      {100, "NVIDIA B200", 148, 1965000, 3996000, 126 << 20, 232448, int64_t(180) << 30},
  };
  for (const Kind &kind : kinds)
    if (kind.arch == arch) {
      auto field = [](const char *name, auto value) {
        return std::string("\"") + name + "\":" + std::to_string(value);
      };
      return std::string("{\"deviceName\":\"") + kind.name + "\",\"cudaDeviceId\":0," + field("deviceVer", arch * 10) +
             ",\"driverVer\":13000,\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
             "\"regsPerBlock\":65536," +
             field("multiProcessorCount", kind.multiprocessors) + "," + field("smClockRateKHz", kind.clock) + "," +
             field("memClockRateKHz", kind.memoryClock) + "," + field("l2CacheSize", kind.cache) +
             ",\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152," +
             field("maxSharedMemoryPerBlockOptin", kind.sharedOptin) +
             ",\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"pciDeviceId\":0,\"maxCtasPerSM\":32,"
             "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"isTccDriver\":0,\"supportCoopLaunch\":1," +
             field("totalGlobalMem", kind.memory) + "}";
    }
  return "";
}
