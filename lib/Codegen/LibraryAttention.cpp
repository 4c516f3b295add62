//===- LibraryAttention.cpp - Attention as the runtime asks cuDNN for it --------------===//
#include "LibraryAttention.h"

using namespace mlir;
using namespace pc;

template <typename OpT> static pcrt_attention_desc describe(OpT op, bool backward, int64_t workspaceBytes) {
  ArrayRef<int64_t> q = cast<RankedTensorType>(op.getQ().getType()).getShape(); // b s k g d
  pcrt_attention_desc desc{};
  desc.backward = backward;
  desc.causal = op.getCausal();
  desc.dtype = PCRT_BF16;
  desc.batch = q[0], desc.q_heads = q[2] * q[3], desc.kv_heads = q[2], desc.head_dim = q[4];
  desc.q_length = q[1], desc.kv_length = cast<RankedTensorType>(op.getK().getType()).getShape()[1];
  desc.scale = op.getScale().convertToDouble();
  auto set = [&](int64_t (&strides)[4], int64_t length, int64_t heads) { // batch, head, position, element
    strides[0] = length * heads * desc.head_dim, strides[1] = desc.head_dim;
    strides[2] = heads * desc.head_dim, strides[3] = 1;
  };
  set(desc.q, desc.q_length, desc.q_heads);
  set(desc.k, desc.kv_length, desc.kv_heads);
  set(desc.v, desc.kv_length, desc.kv_heads);
  set(desc.o, desc.q_length, desc.q_heads);
  if (backward) {
    set(desc.d_o, desc.q_length, desc.q_heads);
    set(desc.dq, desc.q_length, desc.q_heads);
    set(desc.dk, desc.kv_length, desc.kv_heads);
    set(desc.dv, desc.kv_length, desc.kv_heads);
  }
  desc.workspace_bytes = workspaceBytes;
  return desc;
}

pcrt_attention_desc pc::describeAttention(AttentionOp op, int64_t workspaceBytes) {
  return describe(op, /*backward=*/false, workspaceBytes);
}

pcrt_attention_desc pc::describeAttention(AttentionGradOp op, int64_t workspaceBytes) {
  return describe(op, /*backward=*/true, workspaceBytes);
}
