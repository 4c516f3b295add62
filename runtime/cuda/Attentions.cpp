//===- Attentions.cpp - The attentions of a program on cuDNN --------------===//
// Attentions are planned with all of the workspace that the program reserves. Plans that are known to be wrong in some
// versions of cuDNN are refused there.
//===----------------------------------------------------------------------===//
#include "cuda/Attentions.h"
#include "base/Failure.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>

using namespace pcrt;
using namespace pcrt::cuda;

Attentions::Attentions(Session &session, const pcrt_program &program, Kernels *kernels)
    : session(session), program(program), kernels(kernels), shapeOf(program.num_attentions) {
  bool allOwn = std::all_of(program.attentions, program.attentions + program.num_attentions,
                            [](const pcrt_attention_desc &desc) { return desc.own[0]; });
  const char *wanted = getenv("PCRT_CUDA_ATTENTION");
  if (allOwn && wanted && !strcmp(wanted, "own")) {
    reason = "PCRT_CUDA_ATTENTION=own";
    return;
  }
  try {
    load(dnn, &opened);
  } catch (const Failure &failure) {
    if (!allOwn)
      throw;
    reason = failure.message;
    return;
  }
  DnnStatus status = dnn.cudnnCreate(&handle);
  if (!status)
    status = dnn.cudnnSetStream(handle, session.compute);
  if (status)
    fail(PCRT_RESOURCE, "cuDNN (" + opened.path + ") does not start: " + dnn.cudnnGetErrorString(status));
  planner = std::make_unique<AttentionPlanner>(dnn, handle);
}

Attentions::~Attentions() {
  for (auto &shape : shapes)
    if (shape->plan.descriptor)
      dnn.cudnnBackendDestroyDescriptor(shape->plan.descriptor);
  planner.reset();
  if (handle)
    dnn.cudnnDestroy(handle);
}

bool Attentions::deterministic(const pcrt_attention_desc &desc, void *const *args) {
  return desc.backward && !args[9]; // no accumulator
}

/// Returns true if two descriptors differ at most in their names.
static bool same(pcrt_attention_desc a, pcrt_attention_desc b) {
  auto equal = [](const int64_t (&x)[4], const int64_t (&y)[4]) { return memcmp(x, y, sizeof x) == 0; };
  bool good = a.backward == b.backward && a.causal == b.causal && a.dtype == b.dtype && a.batch == b.batch &&
              a.q_heads == b.q_heads && a.kv_heads == b.kv_heads && a.q_length == b.q_length &&
              a.kv_length == b.kv_length && a.head_dim == b.head_dim && a.scale == b.scale && equal(a.q, b.q) &&
              equal(a.k, b.k) && equal(a.v, b.v) && equal(a.o, b.o);
  return good && (!a.backward || (equal(a.d_o, b.d_o) && equal(a.dq, b.dq) && equal(a.dk, b.dk) && equal(a.dv, b.dv)));
}

void Attentions::prepare(int index, void *const *args) {
  const pcrt_attention_desc &desc = program.attentions[index];
  bool oneOrder = deterministic(desc, args);
  if (shapeOf[index] || !planner)
    return;
  for (auto &shape : shapes)
    if (shape->deterministic == oneOrder && same(shape->desc, desc) &&
        shape->plan.workspaceBytes <= desc.workspace_bytes) {
      shapeOf[index] = shape.get();
      return;
    }
  // cudnn-frontend pads such keys by a mask up to 9.15.0 (node/scaled_dot_product_flash_attention.h: `s_kv % 128 != 0`,
  // `<= 91500`), without which their gradients are wrong.
  if (desc.backward && desc.kv_length % 128 && opened.version <= 91500) {
    std::string text = std::string("attention '") + desc.name + "': gradients of " + std::to_string(desc.kv_length) +
                       " keys, which is not a multiple of 128, need cuDNN 9.15.1 or newer; " + opened.path + " is " +
                       describeCudnnVersion(opened.version);
    if (!desc.own[0])
      fail(PCRT_RESOURCE, text + "; install a newer cuDNN, or compile with --attention=generated");
    reason = text;
    return;
  }
  auto made = std::make_unique<Shape>(Shape{desc, oneOrder, {}});
  std::string problem = planner->build(desc, oneOrder, desc.workspace_bytes, &made->plan);
  if (!problem.empty()) {
    std::string text = std::string("attention '") + desc.name + "': cuDNN " + describeCudnnVersion(opened.version) +
                       " has no plan for it on " + session.name + " with " + std::to_string(desc.workspace_bytes) +
                       " bytes of workspace: " + problem;
    if (!desc.own[0])
      fail(PCRT_INTERNAL, text + "; compile with --attention=generated, or with the --arch of this device");
    reason = text;
    return;
  }
  shapes.push_back(std::move(made));
  shapeOf[index] = shapes.back().get();
}

int64_t Attentions::workspaceBytes() const {
  int64_t bytes = 0;
  for (auto &shape : shapes)
    bytes = std::max(bytes, shape->plan.workspaceBytes);
  return bytes;
}

std::string Attentions::run(int index, void *const *args) {
  static constexpr int64_t forwardIds[] = {AttentionQ, AttentionK, AttentionV, AttentionO, AttentionStatistics};
  static constexpr int64_t backwardIds[] = {AttentionQ,          AttentionK,           AttentionV,  AttentionO,
                                            AttentionStatistics, AttentionDO,          AttentionDQ, AttentionDK,
                                            AttentionDV,         AttentionAccumulator, AttentionDot};
  static float minusInfinity = -INFINITY, one = 1;
  if (!shapeOf[index]) {
    for (int32_t own : program.attentions[index].own)
      if (Result result = own ? kernels->launch(own - 1, args) : Success; result != Success)
        return session.describe(result);
    return "";
  }
  Shape &shape = *shapeOf[index];
  const pcrt_attention_desc &desc = shape.desc;
  int64_t ids[16], count = 0, tensors = desc.backward ? std::size(backwardIds) : std::size(forwardIds);
  void *pointers[16];
  auto bind = [&](int64_t id, void *at) {
    ids[count] = id;
    pointers[count++] = at;
  };
  for (int64_t i = 0; i < tensors; ++i)
    if (int64_t id = desc.backward ? backwardIds[i] : forwardIds[i]; id != AttentionAccumulator || !shape.deterministic)
      bind(id, args[i]);
  bind(AttentionScale, &shape.desc.scale);
  if (desc.causal)
    bind(AttentionMinusInfinity, &minusInfinity);
  if (desc.backward)
    bind(AttentionOne, &one);
  void *workspace = args[tensors];
  DnnDescriptor pack = nullptr;
  DnnStatus status = dnn.cudnnBackendCreateDescriptor(dnn::VariantPack, &pack);
  auto set = [&](int attribute, int type, int64_t number, const void *elements) {
    if (!status)
      status = dnn.cudnnBackendSetAttribute(pack, attribute, type, number, elements);
  };
  set(dnn::PackPointers, dnn::TypePointer, count, pointers);
  set(dnn::PackIds, dnn::TypeInt64, count, ids);
  set(dnn::PackWorkspace, dnn::TypePointer, 1, &workspace);
  if (!status)
    status = dnn.cudnnBackendFinalize(pack);
  if (!status)
    status = dnn.cudnnBackendExecute(handle, shape.plan.descriptor, pack);
  std::string problem;
  if (status) {
    char text[1024] = "";
    dnn.cudnnGetLastErrorString(text, sizeof text);
    problem = std::string(dnn.cudnnGetErrorString(status)) + (text[0] ? ": " : "") + text;
  }
  if (pack)
    dnn.cudnnBackendDestroyDescriptor(pack);
  return problem;
}
