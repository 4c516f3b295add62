//===- Cudnn.cpp - Attention through cuDNN's backend API ------------------===//
// Descriptors keep the attributes that were set; an operation graph becomes a TensorGraph, and a plan runs it. A plan
// overwrites its workspace with garbage.
//===----------------------------------------------------------------------===//
#include "standin/Capture.h"
#include "standin/TensorGraph.h"

#include <cstring>

using namespace pc::standin;

/// The contents of a cudnnHandle_t.
struct cudnnContext {
  CUstream stream = nullptr;
};

namespace {

/// One descriptor with its attributes.
struct Descriptor {
  int type;
  bool finalized = false;
  struct Attribute {
    int type;
    std::vector<char> bytes;
  };
  std::map<int, Attribute> attributes;
  std::shared_ptr<const TensorGraph> graph; ///< The graph of graphs, heuristics, configurations and plans.
  int64_t workspace = 0;                    ///< The workspace of configurations and plans.

  template <typename T> std::vector<T> all(int name) const {
    std::vector<T> result;
    if (auto it = attributes.find(name); it != attributes.end()) {
      result.resize(it->second.bytes.size() / sizeof(T));
      memcpy(result.data(), it->second.bytes.data(), result.size() * sizeof(T));
    }
    return result;
  }
  template <typename T> T one(int name, T otherwise) const {
    std::vector<T> values = all<T>(name);
    return values.empty() ? otherwise : values[0];
  }
  const Descriptor *descriptor(int name) const { return one<const Descriptor *>(name, nullptr); }
};

} // namespace

static thread_local std::string lastError;

static cudnnStatus_t fail(cudnnStatus_t status, const std::string &why) {
  lastError = why;
  return status;
}

static int64_t elementBytes(int type) {
  switch (type) {
  case CUDNN_TYPE_BOOLEAN:
  case CUDNN_TYPE_CHAR:
    return 1;
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_INT64:
  case CUDNN_TYPE_DOUBLE:
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    return 8;
  default:
    return 4;
  }
}

PC_EXPORT size_t cudnnGetVersion(void) { return options().cudnn; }
PC_EXPORT size_t cudnnGetCudartVersion(void) { return 13000; }

PC_EXPORT const char *cudnnGetErrorString(cudnnStatus_t status) {
  switch (static_cast<int>(status)) {
#define CASE(name)                                                                                                     \
  case name:                                                                                                           \
    return #name;
    CASE(CUDNN_STATUS_SUCCESS)
    CASE(CUDNN_STATUS_NOT_INITIALIZED)
    CASE(CUDNN_STATUS_BAD_PARAM)
    CASE(CUDNN_STATUS_NOT_SUPPORTED)
    CASE(CUDNN_STATUS_EXECUTION_FAILED)
#undef CASE
  default:
    return "an unknown status";
  }
}

PC_EXPORT void cudnnGetLastErrorString(char *text, size_t bytes) {
  if (bytes)
    snprintf(text, bytes, "%s", lastError.c_str());
}

PC_EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
  Lock lock(driverMutex());
  if (currentDevice() < 0)
    return fail(CUDNN_STATUS_NOT_INITIALIZED, "the calling thread has no CUDA context");
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}

PC_EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

PC_EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Descriptors
//===----------------------------------------------------------------------===//

PC_EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                     cudnnBackendDescriptor_t *descriptor) {
  switch (static_cast<int>(type)) {
  case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
  case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
  case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
  case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
  case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
  case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
  case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
  case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
  case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
    *descriptor = new Descriptor{static_cast<int>(type), false, {}, nullptr, 0};
    return CUDNN_STATUS_SUCCESS;
  default:
    return fail(CUDNN_STATUS_NOT_SUPPORTED,
                "the stand-in has no descriptor of type " + std::to_string(static_cast<int>(type)));
  }
}

PC_EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Descriptor *>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

PC_EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                                 cudnnBackendAttributeType_t type, int64_t count,
                                                 const void *elements) {
  auto *d = static_cast<Descriptor *>(descriptor);
  if (d->finalized)
    return fail(CUDNN_STATUS_BAD_PARAM, "an attribute is set after the descriptor was finalized");
  if (count < 0 || !elements)
    return fail(CUDNN_STATUS_BAD_PARAM, "the attribute has no elements");
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (int64_t i = 0; i < count; ++i)
      if (auto *other = static_cast<Descriptor *const *>(elements)[i]; !other || !other->finalized)
        return fail(CUDNN_STATUS_BAD_PARAM,
                    "attribute " + std::to_string(static_cast<int>(name)) + ": a descriptor that is not finalized");
  auto *bytes = static_cast<const char *>(elements);
  d->attributes[name] = {static_cast<int>(type), {bytes, bytes + count * elementBytes(type)}};
  return CUDNN_STATUS_SUCCESS;
}

PC_EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                                 cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                                 int64_t wanted, int64_t *count, void *elements) {
  auto *d = static_cast<Descriptor *>(descriptor);
  if (!d->finalized)
    return fail(CUDNN_STATUS_BAD_PARAM, "the descriptor is not finalized");
  int64_t got = 0;
  if (d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    // Two configurations, which differ in their workspaces.
    const int64_t workspaces[] = {256, 0};
    got = 2;
    for (int64_t i = 0; i < std::min(wanted, got); ++i) {
      auto *config = static_cast<Descriptor **>(elements)[i];
      config->graph = d->graph;
      config->workspace = workspaces[i];
      config->finalized = true;
    }
  } else if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    got = 1;
    if (wanted >= 1)
      memcpy(elements, &d->workspace, 8);
  } else {
    auto it = d->attributes.find(name);
    if (it == d->attributes.end() || it->second.type != static_cast<int>(type))
      return fail(CUDNN_STATUS_NOT_SUPPORTED,
                  "the stand-in cannot tell attribute " + std::to_string(static_cast<int>(name)));
    got = static_cast<int64_t>(it->second.bytes.size()) / elementBytes(type);
    if (elements && wanted > 0)
      memcpy(elements, it->second.bytes.data(), std::min(wanted, got) * elementBytes(type));
  }
  if (count)
    *count = wanted > 0 ? std::min(wanted, got) : got;
  return CUDNN_STATUS_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

/// Adds the tensor to the graph and returns its id, or -1 for no tensor.
static int64_t addTensor(TensorGraph &graph, const Descriptor *d, std::string &error) {
  if (!d)
    return -1;
  Tensor t;
  t.id = d->one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, -1);
  t.type = d->one<int>(CUDNN_ATTR_TENSOR_DATA_TYPE, -1);
  t.isVirtual = d->one<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0);
  t.isValue = d->one<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0);
  auto dims = d->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS), strides = d->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  if (t.id < 0 || dims.size() != 4 || strides.size() != 4) {
    error = "a tensor without an id, or without four dims and strides";
    return -1;
  }
  std::copy(dims.begin(), dims.end(), t.dims.begin());
  std::copy(strides.begin(), strides.end(), t.strides.begin());
  auto [it, isNew] = graph.tensors.try_emplace(t.id, t);
  if (!isNew && (it->second.dims != t.dims || it->second.strides != t.strides || it->second.type != t.type))
    error = "two tensors with id " + std::to_string(t.id);
  return t.id;
}

static Operation addOperation(TensorGraph &graph, const Descriptor &d, std::string &error) {
  auto tensor = [&](int name) { return addTensor(graph, d.descriptor(name), error); };
  Operation op{};
  op.b = op.t = -1;
  switch (d.type) {
  case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    op.kind = Operation::Matmul;
    op.x = tensor(CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    op.b = tensor(CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    op.y = tensor(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    if (op.b < 0)
      error = "a product without a second factor";
    break;
  case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: {
    op.kind = Operation::Reduction;
    op.x = tensor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    op.y = tensor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    const Descriptor *how = d.descriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    op.mode = how ? how->one<int>(CUDNN_ATTR_REDUCTION_OPERATOR, -1) : -1;
    if (op.mode != CUDNN_REDUCE_TENSOR_ADD && op.mode != CUDNN_REDUCE_TENSOR_MAX)
      error = "reduction " + std::to_string(op.mode);
    break;
  }
  case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
    op.kind = Operation::Reshape;
    op.x = tensor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
    op.y = tensor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    break;
  case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
    op.kind = Operation::Pointwise;
    op.x = tensor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    op.b = tensor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    op.t = tensor(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    op.y = tensor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    const Descriptor *how = d.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    op.mode = how ? how->one<int>(CUDNN_ATTR_POINTWISE_MODE, -1) : -1;
    op.axis = how ? static_cast<int>(how->one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1)) : -1;
    bool binary = op.mode == CUDNN_POINTWISE_ADD || op.mode == CUDNN_POINTWISE_SUB || op.mode == CUDNN_POINTWISE_MUL ||
                  op.mode == CUDNN_POINTWISE_DIV || op.mode == CUDNN_POINTWISE_CMP_GE;
    bool unary = op.mode == CUDNN_POINTWISE_EXP || op.mode == CUDNN_POINTWISE_LOG ||
                 op.mode == CUDNN_POINTWISE_IDENTITY || op.mode == CUDNN_POINTWISE_GEN_INDEX;
    bool select = op.mode == CUDNN_POINTWISE_BINARY_SELECT;
    if (!binary && !unary && !select)
      error = "elementwise operation " + std::to_string(op.mode);
    else if ((op.b >= 0) != !unary || (op.t >= 0) != select)
      error = "elementwise operation " + std::to_string(op.mode) + " with a wrong number of operands";
    break;
  }
  default:
    error = "an operation of type " + std::to_string(d.type);
  }
  if (error.empty() && (op.x < 0 || op.y < 0))
    error = "an operation without an operand or result";
  return op;
}

static cudnnStatus_t finalizeGraph(Descriptor &d) {
  auto graph = std::make_shared<TensorGraph>();
  std::string error;
  for (const Descriptor *op : d.all<const Descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    graph->operations.push_back(addOperation(*graph, *op, error));
    if (!error.empty())
      return fail(CUDNN_STATUS_BAD_PARAM, error);
  }
  if (std::string why = graph->check(); !why.empty())
    return fail(CUDNN_STATUS_NOT_SUPPORTED, why);
  d.graph = std::move(graph);
  return CUDNN_STATUS_SUCCESS;
}

PC_EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Lock lock(driverMutex());
  auto &d = *static_cast<Descriptor *>(descriptor);
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  switch (d.type) {
  case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
    status = finalizeGraph(d);
    break;
  case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
    if (const Descriptor *graph = d.descriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH))
      d.graph = graph->graph;
    else
      status = fail(CUDNN_STATUS_BAD_PARAM, "a heuristic without a graph");
    break;
  case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
    if (const Descriptor *config = d.descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG))
      d.graph = config->graph, d.workspace = config->workspace;
    else
      status = fail(CUDNN_STATUS_NOT_SUPPORTED, "a plan without a configuration, which the stand-in does not support");
    break;
  default:
    break;
  }
  d.finalized = status == CUDNN_STATUS_SUCCESS;
  return status;
}

PC_EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                            cudnnBackendDescriptor_t pack) {
  Lock lock(driverMutex());
  auto &p = *static_cast<Descriptor *>(plan);
  auto &v = *static_cast<Descriptor *>(pack);
  if (!p.finalized || !p.graph || !v.finalized)
    return fail(CUDNN_STATUS_BAD_PARAM, "a plan or pack that is not finalized");
  auto ids = v.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  auto pointers = v.all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (ids.size() != pointers.size())
    return fail(CUDNN_STATUS_BAD_PARAM, "the numbers of ids and pointers differ");
  TensorGraph::Binding binding;
  for (size_t i = 0; i < ids.size(); ++i)
    binding.pointers[ids[i]] = pointers[i];
  for (const auto &[id, t] : p.graph->tensors) {
    if (t.isVirtual)
      continue;
    void *at = binding.pointers.count(id) ? binding.pointers[id] : nullptr;
    if (!at)
      return fail(CUDNN_STATUS_BAD_PARAM, "there is no pointer for tensor " + std::to_string(id));
    if (t.isValue)
      memcpy(&binding.values[id], at, 4);
    else if (reinterpret_cast<uintptr_t>(at) % 16)
      return fail(CUDNN_STATUS_BAD_PARAM, "tensor " + std::to_string(id) + " is not aligned to 16 bytes");
  }
  void *workspace = v.one<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  if (p.workspace && !workspace)
    return fail(CUDNN_STATUS_BAD_PARAM, "the workspace is missing");
  Work work;
  work.name = p.graph->name();
  work.accesses = p.graph->accesses(binding);
  if (p.workspace)
    work.accesses.push_back({workspace, p.workspace, 1});
  // Up to 9.15.0 gradients are wrong if the last 128 keys are not complete: cudnn-frontend then adds a padding mask
  // (node/scaled_dot_product_flash_attention.h, `s_kv % 128 != 0` and `<= 91500`), which the graphs here do not have.
  bool spoils = p.graph->isBackward() && options().cudnn <= 91500;
  work.run = [spoils, graph = p.graph, binding, workspace, bytes = p.workspace](std::vector<Access> &) {
    if (bytes)
      memset(workspace, 0xff, bytes);
    graph->run(binding, spoils);
    return std::string();
  };
  return enqueue(handle->stream, std::move(work), "cudnnBackendExecute") == CUDA_SUCCESS
             ? CUDNN_STATUS_SUCCESS
             : fail(CUDNN_STATUS_EXECUTION_FAILED, "the work could not be enqueued");
}
