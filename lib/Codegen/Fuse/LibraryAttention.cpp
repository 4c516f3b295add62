//===- LibraryAttention.cpp - Descriptions of attention for cuDNN ---------------------===//
// Translates the shape of an attention op into sizes and strides for cuDNN. The dims [b, s, k, g, d] are batch,
// position, key head, query heads per key head, and head size. In packed attention, the queries, keys and values of a
// key head are adjacent.
//===-----------------------------------------------------------------------------===//
#include "LibraryAttention.h"
#include "pc/Cost/CudaWorkspace.h"
#include "pc/IR/Shapes.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;

/// Describes an attention in bf16 to the library. Strides are in elements, in the order batch, head, position, element.
template <typename OpT> static pcrt_attention_desc describe(OpT op, bool backward, int64_t workspaceBytes) {
  ArrayRef<int64_t> o = shapeOf(op.getO()); // b s k g d
  pcrt_attention_desc desc{};
  desc.backward = backward;
  desc.causal = op.getCausal();
  desc.dtype = PCRT_BF16;
  desc.batch = o[0], desc.q_heads = o[2] * o[3], desc.kv_heads = o[2], desc.head_dim = o[4];
  desc.q_length = desc.kv_length = o[1];
  desc.scale = op.getScale().convertToDouble();
  // The strides of positions and heads, in q and in k and v.
  int64_t queryRow = desc.q_heads * desc.head_dim, keyRow = desc.kv_heads * desc.head_dim;
  int64_t queryHead = desc.head_dim, keyHead = desc.head_dim;
  if constexpr (requires { op.getQkv(); }) {
    // In a packed value, each kv head has its query heads, then k, then v. One stride can describe the query heads only
    // if each kv head has one of them, or if there is one kv head.
    keyHead = (o[3] + 2) * desc.head_dim;
    queryRow = keyRow = desc.kv_heads * keyHead;
    queryHead = o[3] == 1 ? keyHead : desc.head_dim;
  } else {
    desc.kv_length = shapeOf(op.getK())[1];
  }
  auto set = [&](int64_t (&strides)[4], int64_t length, int64_t row, int64_t head) { // batch, head, position, element
    strides[0] = length * row, strides[1] = head, strides[2] = row, strides[3] = 1;
  };
  auto setOut = [&](int64_t (&strides)[4]) {
    set(strides, desc.q_length, desc.q_heads * desc.head_dim, desc.head_dim);
  };
  set(desc.q, desc.q_length, queryRow, queryHead);
  set(desc.k, desc.kv_length, keyRow, keyHead);
  set(desc.v, desc.kv_length, keyRow, keyHead);
  setOut(desc.o);
  if (backward) {
    setOut(desc.d_o);
    set(desc.dq, desc.q_length, queryRow, queryHead);
    set(desc.dk, desc.kv_length, keyRow, keyHead);
    set(desc.dv, desc.kv_length, keyRow, keyHead);
  }
  desc.workspace_bytes = workspaceBytes;
  return desc;
}

pcrt_attention_desc pc::describeAttention(Operation *op, int64_t workspaceBytes) {
  return llvm::TypeSwitch<Operation *, pcrt_attention_desc>(op)
      .Case<AttentionOp, AttentionGradOp, PackedAttentionOp, PackedAttentionGradOp>(
          [&](auto attention) { return describe(attention, isAttentionGrad(op), workspaceBytes); });
}
