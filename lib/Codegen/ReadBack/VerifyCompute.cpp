//===- VerifyCompute.cpp - Compares kernels and attention with their ops ----------------------===//
// Compares each call of a kernel or an attention with the op of the planned program. It compares the table row and the
// buffers in order, and checks that a kernel is used only for ops with the same text. VerifyProducts.cpp compares
// products.
//===-----------------------------------------------------------------------------===//
#include "../Emit/Kernel.h"
#include "../Fuse/Grouped.h"
#include "TableCheck.h"
#include "pc/Cost/CudaWorkspace.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Liveness.h"
#include "pc/IR/MoveRows.h"
#include "pc/IR/Sharing.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace pc;
using At = StepReader::At;
using Call = StepReader::Call;

SmallVector<At> TableCheck::piecesOf(Operation *op, ArrayRef<At> values) {
  SmallVector<At> pieces;
  for (auto [i, at] : llvm::enumerate(values))
    for (int64_t bytes : pieceBytes(op, i))
      pieces.push_back({at.offset + bytes, at.stride});
  return pieces;
}

/// A text that is equal for ops that may share a kernel. It has everything except homes, locations and names of leaves.
static std::string textOf(Operation *op, unsigned part) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::DenseMap<Value, size_t> numbers;
  auto show = [&](Value value) {
    os << numbers.try_emplace(value, numbers.size()).first->second << withEncoding(value.getType(), rowsOf(value));
  };
  op->walk<WalkOrder::PreOrder>([&](Operation *inner) {
    os << inner->getName() << part;
    llvm::for_each(inner->getOperands(), show);
    auto choice = dyn_cast<TopKOp>(inner);
    for (StringAttr name : inner->getName().getAttributeNames())
      if (std::optional<Attribute> value = inner->getInherentAttr(name); value && *value && !isa<UpdateOp>(inner))
        if (!choice || !choice.isForRun(name))
          os << name << *value;
    for (Region &region : inner->getRegions())
      llvm::for_each(region.getArguments(), show);
    llvm::for_each(inner->getResults(), show);
  });
  return text;
}

/// Checks that a kernel is used only for ops with one text, and that ops with one text have one kernel.
bool TableCheck::isKernelOf(Operation *op, int64_t row, unsigned part) {
  if (hasRows(op) && !isOnRows(op)) {
    RowForm form = rowForm(op);
    bool is = isKernelOf(form.op, row, part);
    if (names.written)
      names.written->programs.emplace_back(form.holder.release().getOperation());
    return is;
  }
  if (row < 0 || row >= static_cast<int64_t>(kernelRows.size()))
    return refuse(op, "has kernel " + Twine(row) + ", which is not in the table");
  std::string function = cuda ? StringRef(deviceRows[row].entry).str() : TableReader::nameOf(kernelRows[row].fn).str();
  const std::string inF32 = TableReader::nameOf(kernelRows[row].fn_f32).str();
  if (!inF32.empty() && (cuda || inF32 != function + "_f32"))
    return refuse(op, "has kernel @" + inF32 + " for the f32 form of @" + function);
  std::string text = textOf(op, part);
  auto [ops, isFirst] = names.opsOf.try_emplace(function, text);
  auto [name, isNew] = names.of.try_emplace(text, function);
  if (names.written && isFirst) {
    if (part == 0)
      names.written->kernels.push_back({op->clone(), planned, function, "pc_program" + suffix, {}, false});
    names.written->kernels.back().rows.push_back(row);
    names.written->kernels.back().hasF32Form |= !inF32.empty();
  }
  // There is one function per text and one text per function, so a kernel cannot be used for an op for which it was not
  // written.
  bool isNamed = StringRef(function).starts_with(("pc_" + op->getName().stripDialect() + "_").str());
  return (isNamed && ops->second == text && name->second == function) ||
         refuse(op, "runs kernel @" + function + ", which was written for other ops");
}

/// A library call may have kernels of the program as substitutes. Their rows must follow in the table of kernels.
bool TableCheck::isBeside(Operation *op, int64_t row, int32_t epilogue) {
  const int64_t buffers = (epilogue == PCRT_EPILOGUE_GELU_GRAD ? 3 : 2) + (kernelWorkspaceBytes(op) != 0);
  for (unsigned part = 0, count = numKernels(op, cuda); part < count; ++part)
    if (!isKernelOf(op, row + part, part) || !same(op, "buffers", deviceRows[row + part].num_args, buffers))
      return false;
  return true;
}

/// Returns true if the next calls launch all parts of the op's kernels on its buffers.
bool TableCheck::launches(Operation *op, ArrayRef<At> buffers) {
  SmallVector<At> wanted(buffers);
  if (cuda && kernelWorkspaceBytes(op))
    wanted.push_back({program.workspace_offset, 0});
  for (unsigned part = 0, count = numKernels(op, cuda); part < count; ++part) {
    const Call *call = expect(op, "pcrt_launch");
    if (!call || !isKernelOf(op, call->number(1), part) || !isNext(op, call->number(1), lastKernel))
      return false;
    if (call->list.size() != wanted.size())
      return refuse(op, "has " + Twine(wanted.size()) + " buffers, but its kernel takes " + Twine(call->list.size()));
    for (auto [i, at] : llvm::enumerate(wanted))
      if (!same(op, ("buffer " + Twine(i)).str(), call->list[i], at))
        return false;
    if (cuda && deviceRows[call->number(1)].num_args != static_cast<int64_t>(wanted.size()))
      return refuse(op, "has a kernel that takes a different number of buffers");
  }
  return true;
}

/// The sizes and strides of an attention on separate heads, or on packed heads with queries, keys and values of each
/// group.
template <typename OpT> static pcrt_attention_desc attentionOf(OpT op) {
  ArrayRef<int64_t> o = cast<RankedTensorType>(op.getO().getType()).getShape(); // b s k g d
  int64_t length = o[1], kv = o[2], group = o[3], d = o[4], keys = length, row = kv * group * d;
  int64_t queries[] = {d, row}, values[] = {d, kv * d}; // from head to head, from position to position
  if constexpr (requires { op.getQkv(); }) {
    queries[0] = group == 1 ? 3 * d : d;
    values[0] = (group + 2) * d;
    queries[1] = values[1] = kv * (group + 2) * d;
  } else {
    keys = cast<RankedTensorType>(op.getK().getType()).getShape()[1];
  }
  pcrt_attention_desc desc{};
  desc.backward = isAttentionGrad(op);
  desc.causal = op.getCausal();
  desc.dtype = PCRT_BF16;
  desc.batch = o[0], desc.q_heads = kv * group, desc.kv_heads = kv, desc.q_length = length, desc.kv_length = keys;
  desc.head_dim = d;
  desc.scale = static_cast<float>(op.getScale().convertToDouble());
  auto set = [&](int64_t (&strides)[4], int64_t positions, int64_t head, int64_t position) {
    int64_t all[] = {positions * position, head, position, 1};
    llvm::copy(all, strides);
  };
  set(desc.q, length, queries[0], queries[1]), set(desc.o, length, d, row);
  set(desc.k, keys, values[0], values[1]), set(desc.v, keys, values[0], values[1]);
  if (desc.backward) {
    set(desc.dq, length, queries[0], queries[1]), set(desc.d_o, length, d, row);
    set(desc.dk, keys, values[0], values[1]), set(desc.dv, keys, values[0], values[1]);
  }
  return desc;
}

/// The row must describe exactly this attention, and its kernels must follow in the table.
bool TableCheck::attention(Operation *op, const Call &call, ArrayRef<At> buffers) {
  int64_t index = call.number(1);
  if (index < 0 || index >= static_cast<int64_t>(attentionRows.size()) ||
      !isa<AttentionOp, AttentionGradOp, PackedAttentionOp, PackedAttentionGradOp>(op))
    return refuse(op, "has an attention that is not in the table");
  if (!isNext(op, index, lastAttention))
    return false;
  pcrt_attention_desc row = attentionRows[index];
  pcrt_attention_desc wanted = llvm::TypeSwitch<Operation *, pcrt_attention_desc>(op)
                                   .Case<AttentionOp, AttentionGradOp, PackedAttentionOp, PackedAttentionGradOp>(
                                       [](auto attention) { return attentionOf(attention); });
  for (auto [part, kernel] : llvm::enumerate(row.own))
    if (kernel && !isKernelOf(op, kernel - 1, part))
      return false;
  wanted.workspace_bytes = row.workspace_bytes;
  llvm::copy(row.own, wanted.own);
  SmallVector<int64_t> found, expected; // all fields except the first, which is the name
  forEachField(row, [&](const auto &field) {
    if constexpr (!std::is_pointer_v<std::remove_cvref_t<decltype(field)>>)
      found.push_back(static_cast<int64_t>(field * int64_t(65536)));
  });
  forEachField(wanted, [&](const auto &field) {
    if constexpr (!std::is_pointer_v<std::remove_cvref_t<decltype(field)>>)
      expected.push_back(static_cast<int64_t>(field * int64_t(65536)));
  });
  if (found != expected)
    return refuse(op, "is a different attention in the tables");
  if (call.list.size() <= buffers.size() || ArrayRef(call.list).take_front(buffers.size()) != buffers)
    return refuse(op, "runs on different buffers in the step's calls");
  // The op's temporary buffers begin at the start of the workspace, and the last buffer ends at the end of the
  // workspace.
  SmallVector<At> parts = {{program.workspace_offset, 0}};
  int64_t rows = wanted.batch * wanted.q_heads * wanted.q_length;
  if (wanted.backward)
    for (int64_t floats : {rows * wanted.head_dim, rows}) // the sizes of dq and lse
      parts.push_back({parts.back().offset + static_cast<int64_t>(llvm::alignTo(4 * floats, cudaAlignment)), 0});
  bool fits = parts.back().offset + row.workspace_bytes == program.workspace_offset + program.workspace_bytes;
  return (fits && ArrayRef(call.list).drop_front(buffers.size()) == ArrayRef(parts)) ||
         refuse(op, "has temporary buffers outside its part of the workspace");
}

/// Checks a kernel that several ops share; its argument is the whole arena.
bool TableCheck::together(Operation *op) {
  auto isShared = [&](size_t at) {
    return at < calls.size() && calls[at].callee == "pcrt_launch" && calls[at].list == SmallVector<At>{At{0, 0}};
  };
  size_t at = next; // the kernels of sums of squares follow outputs between the ops
  while (isa<EinsumOp>(op) && at < calls.size() && calls[at].callee == "pcrt_observe")
    ++at;
  StringRef kernels = llvm::TypeSwitch<Operation *, StringRef>(op)
                          .Case([](AdamWOp) { return "pc_adamw_all_"; })
                          .Case([](SGDOp) { return "pc_sgd_all_"; })
                          .Case([](CastOp) { return "pc_round_all_"; })
                          .Case([](EinsumOp) { return "pc_squares_"; })
                          .Default([](Operation *) { return ""; });
  if (!cuda || kernels.empty() || !isShared(at))
    return false;
  int64_t row = calls[at].number(1);
  if (row < 0 || row >= static_cast<int64_t>(deviceRows.size()) ||
      !StringRef(deviceRows[row].entry).starts_with(kernels))
    return false;
  for (; next < at; ++next)
    shownEarly[calls[next].number(1)] = next;
  next += isa<EinsumOp>(op) && isShared(at + 1) ? 2 : 1;
  sharing = op;
  return true;
}

/// An op runs together with a group of ops, as a library call, or as separate kernels.
bool TableCheck::compute(Operation *op) {
  SmallVector<At> values;
  for (Value value : llvm::concat<Value>(llvm::to_vector(op->getOperands()), llvm::to_vector(op->getResults())))
    values.push_back(homeOf(value));
  SmallVector<At> buffers = piecesOf(op, values);
  if (together(op))
    return true;
  StringRef callee = next < calls.size() ? calls[next].callee : "";
  if (callee == "pcrt_gemm" || callee == "pcrt_attention") {
    const Call *call = expect(op, callee);
    return call && (callee == "pcrt_gemm" ? product(op, *call) : attention(op, *call, buffers));
  }
  bool isOwn = callee == "pcrt_launch" && ArrayRef(calls[next].list).take_front(buffers.size()) == ArrayRef(buffers);
  if (!isOwn && sharing && sharing->getName() == op->getName()) { // the previous kernel computed it
    sharesKernelOf[op] = sharing;
    return true;
  }
  return launches(op, buffers);
}
