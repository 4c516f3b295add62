//===- TensorGraph.cpp - The operation graphs of cuDNN --------------------===//
// check() matches a graph with the forms that cuDNN's engines for attention take; run() interprets any graph.
//===----------------------------------------------------------------------===//
#include "standin/TensorGraph.h"
#include "standin/Numbers.h"

#include <algorithm>
#include <cmath>
#include <set>

using namespace pc::standin;

//===----------------------------------------------------------------------===//
// The contents of a graph
//===----------------------------------------------------------------------===//

std::string TensorGraph::check() const {
  size_t n = operations.size();
  bool forward = n == 10 || n == 14;
  if (!forward && (n < 17 || n > 24))
    return std::to_string(n) + " operations are neither attention forward (10 or 14) nor backward (17 to 24)";
  for (const auto &[id, t] : tensors) {
    if (t.type != CUDNN_DATA_FLOAT && t.type != CUDNN_DATA_BFLOAT16 && !t.isVirtual)
      return "tensor " + std::to_string(id) + " is neither f32 nor bf16";
    for (int i = 0; i < 4; ++i)
      if (t.dims[i] < 1 || t.strides[i] < 1)
        return "tensor " + std::to_string(id) + " has an extent or stride below 1";
  }
  auto tensor = [&](int64_t id) -> const Tensor & { return tensors.at(id); };
  for (const Operation &op : operations) {
    const Tensor &x = tensor(op.x), &y = tensor(op.y);
    auto wrong = [&](const std::string &what) {
      return "the operation that makes tensor " + std::to_string(y.id) + ": " + what;
    };
    switch (op.kind) {
    case Operation::Matmul: {
      const Tensor &b = tensor(op.b);
      if (x.dims[0] != b.dims[0] || x.dims[1] % b.dims[1] || x.dims[3] != b.dims[2] ||
          y.dims != Dims{x.dims[0], x.dims[1], x.dims[2], b.dims[3]})
        return wrong("extents of the product do not match");
      if (!x.isVirtual && x.type != CUDNN_DATA_BFLOAT16)
        return wrong("a factor is not bf16");
      int64_t width = std::min({x.dims[3], b.dims[3], x.dims[2], b.dims[2]});
      if (!b.isVirtual && b.strides[3] == 1 && b.dims[3] % 8 && width)
        return wrong("the head dim is not a multiple of 8");
      break;
    }
    case Operation::Pointwise:
      for (int64_t id : {op.x, op.b, op.t})
        for (int i = 0; id >= 0 && i < 4; ++i)
          if (tensor(id).dims[i] != y.dims[i] && tensor(id).dims[i] != 1)
            return wrong("extents do not broadcast");
      break;
    case Operation::Reduction:
      for (int i = 0; i < 4; ++i)
        if (x.dims[i] % y.dims[i])
          return wrong("extents do not reduce");
      break;
    case Operation::Reshape:
      if (y.dims != Dims{x.dims[0], x.dims[1], x.dims[3], x.dims[2]} || y.strides[2] != x.strides[3] ||
          y.strides[3] != x.strides[2])
        return wrong("a reshape is not a transposition of the last two dims");
      break;
    }
  }
  return "";
}

std::string TensorGraph::name() const {
  for (const Operation &op : operations)
    if (op.kind == Operation::Matmul) {
      const Dims &q = tensors.at(op.x).dims, &k = tensors.at(op.b).dims;
      return std::string("attention ") + (isBackward() ? "backward " : "forward ") + std::to_string(q[0]) + "x" +
             std::to_string(q[1]) + "x" + std::to_string(q[2]) + "x" + std::to_string(k[3]) + ", " +
             std::to_string(q[3]) + " wide";
    }
  return "attention";
}

/// Adds the bytes of a tensor, as few ranges.
static void addRanges(const Tensor &t, const char *base, bool write, std::vector<Access> &accesses) {
  std::array<int, 4> order{0, 1, 2, 3};
  std::sort(order.begin(), order.end(), [&](int a, int b) { return t.strides[a] < t.strides[b]; });
  int64_t run = 1; // elements without gaps
  size_t outer = 0;
  while (outer < 4 && (t.strides[order[outer]] == run || t.dims[order[outer]] == 1))
    run *= t.dims[order[outer++]];
  Dims counts{1, 1, 1, 1}, steps{};
  for (size_t i = outer; i < 4; ++i)
    counts[i] = t.dims[order[i]], steps[i] = t.strides[order[i]];
  int64_t size = t.elementBytes();
  for (int64_t a = 0; a < counts[3]; ++a)
    for (int64_t b = 0; b < counts[2]; ++b)
      for (int64_t c = 0; c < counts[1]; ++c)
        for (int64_t d = 0; d < counts[0]; ++d)
          accesses.push_back(
              {base + (a * steps[3] + b * steps[2] + c * steps[1] + d * steps[0]) * size, run * size, write});
}

std::vector<Access> TensorGraph::accesses(const Binding &binding) const {
  std::vector<Access> result;
  std::set<int64_t> known; // read or made before
  auto add = [&](int64_t id, bool write) {
    if (id < 0 || !known.insert(id).second)
      return;
    const Tensor &t = tensors.at(id);
    if (!t.isVirtual && !t.isValue)
      addRanges(t, static_cast<const char *>(binding.pointers.at(id)), write, result);
  };
  for (const Operation &op : operations) {
    for (int64_t id : {op.x, op.b, op.t})
      add(id, false);
    add(op.y, true);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Execution
//===----------------------------------------------------------------------===//

namespace {

/// One batch entry of a tensor, dense, in f32: [head][row][column].
struct Values {
  int64_t heads = 0, rows = 0, columns = 0;
  std::vector<float> data;

  float *head(int64_t h) { return data.data() + h * rows * columns; }
};

/// One execution of a graph for one element of the batch.
struct Run {
  const TensorGraph &graph;
  const TensorGraph::Binding &binding;
  int64_t batch;
  std::map<int64_t, Values> values;

  Values &make(int64_t id) {
    const Tensor &t = graph.tensors.at(id);
    Values &v = values[id];
    v.heads = t.dims[1], v.rows = t.dims[2], v.columns = t.dims[3];
    v.data.resize(v.heads * v.rows * v.columns);
    return v;
  }

  /// Calls body(element of v, offset in memory) for each element.
  template <typename Body> void forElements(const Tensor &t, Values &v, Body body) {
    int64_t base = t.dims[0] == 1 ? 0 : batch * t.strides[0];
    for (int64_t h = 0; h < v.heads; ++h)
      for (int64_t i = 0; i < v.rows; ++i) {
        float *row = v.head(h) + i * v.columns;
        int64_t offset = base + h * t.strides[1] + i * t.strides[2];
        for (int64_t j = 0; j < v.columns; ++j)
          body(row[j], offset + j * t.strides[3]);
      }
  }

  Values &get(int64_t id) {
    if (auto it = values.find(id); it != values.end())
      return it->second;
    const Tensor &t = graph.tensors.at(id);
    Values &v = make(id);
    if (t.isValue) {
      v.data[0] = binding.values.at(id);
    } else if (t.type == CUDNN_DATA_BFLOAT16) {
      auto *from = static_cast<const uint16_t *>(binding.pointers.at(id));
      forElements(t, v, [&](float &to, int64_t at) { to = fromBf16(from[at]); });
    } else {
      auto *from = static_cast<const float *>(binding.pointers.at(id));
      forElements(t, v, [&](float &to, int64_t at) { to = from[at]; });
    }
    return v;
  }

  /// Rounds a result to its type, and writes it to memory if the tensor is real.
  void put(int64_t id) {
    const Tensor &t = graph.tensors.at(id);
    Values &v = values.at(id);
    if (t.type == CUDNN_DATA_BFLOAT16)
      for (float &x : v.data)
        x = fromBf16(toBf16(x));
    if (t.isVirtual)
      return;
    if (t.type == CUDNN_DATA_BFLOAT16) {
      auto *to = static_cast<uint16_t *>(binding.pointers.at(id));
      forElements(t, v, [&](float &from, int64_t at) { to[at] = toBf16(from); });
    } else {
      auto *to = static_cast<float *>(binding.pointers.at(id));
      forElements(t, v, [&](float &from, int64_t at) { to[at] = from; });
    }
  }

  void spoil(int64_t id) {
    Values &v = values.at(id);
    for (int64_t h = 0; h < v.heads; ++h)
      std::fill(v.head(h) + v.rows / 128 * 128 * v.columns, v.head(h) + v.rows * v.columns, NAN);
  }

  void matmul(const Operation &op) {
    Values &a = get(op.x), &b = get(op.b), &c = make(op.y);
    int64_t group = a.heads / b.heads;
    for (int64_t h = 0; h < a.heads; ++h)
      multiply(false, false, a.rows, b.columns, a.columns, a.head(h), a.columns, b.head(h / group), b.columns,
               c.head(h), c.columns);
  }

  /// Computes y = f(x, b, t); operands of extent 1 are repeated.
  template <typename Function> void apply(const Operation &op, Function f) {
    Values &x = get(op.x), &b = get(op.b >= 0 ? op.b : op.x), &t = get(op.t >= 0 ? op.t : op.x), &y = make(op.y);
    auto row = [](Values &v, int64_t h, int64_t i) {
      return v.head(v.heads == 1 ? 0 : h) + (v.rows == 1 ? 0 : i * v.columns);
    };
    auto step = [](Values &v) { return v.columns == 1 ? 0 : 1; };
    int64_t xs = step(x), bs = step(b), ts = step(t);
    for (int64_t h = 0; h < y.heads; ++h)
      for (int64_t i = 0; i < y.rows; ++i) {
        const float *xr = row(x, h, i), *br = row(b, h, i), *tr = row(t, h, i);
        float *yr = y.head(h) + i * y.columns;
        for (int64_t j = 0; j < y.columns; ++j)
          yr[j] = f(xr[j * xs], br[j * bs], tr[j * ts]);
      }
  }

  void index(const Operation &op) {
    Values &y = make(op.y);
    for (int64_t h = 0; h < y.heads; ++h)
      for (int64_t i = 0; i < y.rows; ++i)
        for (int64_t j = 0; j < y.columns; ++j)
          y.head(h)[i * y.columns + j] = static_cast<float>(op.axis == 1 ? h : op.axis == 2 ? i : j);
  }

  void pointwise(const Operation &op) {
    switch (op.mode) {
    case CUDNN_POINTWISE_ADD:
      return apply(op, [](float x, float b, float) { return x + b; });
    case CUDNN_POINTWISE_SUB:
      return apply(op, [](float x, float b, float) { return x - b; });
    case CUDNN_POINTWISE_MUL:
      return apply(op, [](float x, float b, float) { return x * b; });
    case CUDNN_POINTWISE_DIV:
      return apply(op, [](float x, float b, float) { return x / b; });
    case CUDNN_POINTWISE_EXP:
      return apply(op, [](float x, float, float) { return std::exp(x); });
    case CUDNN_POINTWISE_LOG:
      return apply(op, [](float x, float, float) { return std::log(x); });
    case CUDNN_POINTWISE_IDENTITY:
      return apply(op, [](float x, float, float) { return x; });
    case CUDNN_POINTWISE_CMP_GE:
      return apply(op, [](float x, float b, float) { return x >= b ? 1.0f : 0.0f; });
    case CUDNN_POINTWISE_BINARY_SELECT:
      return apply(op, [](float x, float b, float t) { return t != 0 ? x : b; });
    default:
      return index(op);
    }
  }

  void reduce(const Operation &op) {
    Values &x = get(op.x), &y = make(op.y);
    int64_t heads = x.heads / y.heads, rows = x.rows / y.rows, columns = x.columns / y.columns;
    bool largest = op.mode == CUDNN_REDUCE_TENSOR_MAX;
    for (int64_t h = 0; h < y.heads; ++h)
      for (int64_t i = 0; i < y.rows; ++i)
        for (int64_t j = 0; j < y.columns; ++j) {
          float result = largest ? -INFINITY : 0;
          for (int64_t a = h * heads; a < (h + 1) * heads; ++a)
            for (int64_t b = i * rows; b < (i + 1) * rows; ++b)
              for (int64_t c = j * columns; c < (j + 1) * columns; ++c) {
                float value = x.head(a)[b * x.columns + c];
                result = largest ? std::max(result, value) : result + value;
              }
          y.head(h)[i * y.columns + j] = result;
        }
  }

  void transpose(const Operation &op) {
    Values &x = get(op.x), &y = make(op.y);
    for (int64_t h = 0; h < y.heads; ++h)
      for (int64_t i = 0; i < y.rows; ++i)
        for (int64_t j = 0; j < y.columns; ++j)
          y.head(h)[i * y.columns + j] = x.head(h)[j * x.columns + i];
  }
};

} // namespace

void TensorGraph::run(const Binding &binding, bool spoils) const {
  int64_t batches = 1;
  for (const auto &[id, t] : tensors)
    batches = std::max(batches, t.dims[0]);
  for (int64_t batch = 0; batch < batches; ++batch) {
    Run run{*this, binding, batch, {}};
    std::set<int64_t> ofKeys; // products with transposed scores, and their sums over the heads of a group
    for (const Operation &op : operations) {
      switch (op.kind) {
      case Operation::Matmul:
        run.matmul(op);
        break;
      case Operation::Pointwise:
        run.pointwise(op);
        break;
      case Operation::Reduction:
        run.reduce(op);
        break;
      case Operation::Reshape:
        run.transpose(op);
        break;
      }
      if (op.kind == Operation::Reshape || ofKeys.count(op.x))
        ofKeys.insert(op.y);
      if (spoils && op.kind != Operation::Reshape && ofKeys.count(op.y))
        run.spoil(op.y);
      run.put(op.y);
    }
  }
}
