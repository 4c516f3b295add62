//===- RowSegments.cpp - The nodes of a row kernel, segment by segment ----------------------===//
#include "RowGraph.h"

using namespace mlir;
using namespace pc;
using namespace pc::rowprogram;
using kernels::Emitter;

void RowProgram::schedule() {
  for (Node &n : nodes) {
    for (int a : n.args) {
      const Node &arg = nodes[a];
      // The result of a reduction is known one segment after the loop that computes it.
      n.segment = std::max(n.segment, arg.segment + (arg.reduction != Reduction::None ? 1 : 0));
    }
  }
  // CPU: an element that a later segment reads is kept, in a result if it is one, else in a scratch row; loads are
  // repeated. GPU: it stays in registers or is computed again from the operands, which still exist, because no fusion
  // that reduces works in place (mayShareHome).
  if (k.simt)
    return;
  for (Node &n : nodes)
    for (int a : n.args) {
      Node &arg = nodes[a];
      if (n.space != Space::Full && n.reduction == Reduction::None)
        continue;
      if (arg.space == Space::Full && arg.segment < n.segment && !arg.args.empty() && !arg.recompute &&
          arg.stores.empty() && arg.scratch < 0)
        arg.scratch = numScratch++;
    }
}

/// The value of node n inside the column loop of `segment`.
Num RowProgram::value(int n, const Position &at, SmallVectorImpl<Num> &cache, int segment) {
  Node &nd = nodes[n];
  if (nd.space != Space::Full)
    return rowValues[n];
  if (cache[n].v)
    return cache[n];
  if (nd.segment < segment && !nd.args.empty() && !nd.recompute) {
    if (!nd.stores.empty())
      return cache[n] = nd.stores[0].load(at.row * columns + at.column, at.width);
    if (nd.scratch >= 0)
      return cache[n] = k.scratch.load(at.column + nd.scratch * columns, at.width);
  }
  SmallVector<Num> args;
  for (int a : nd.args)
    args.push_back(value(a, at, cache, segment));
  Num v = nd.eval(args, at);
  if (v.isFloat() && !v.width() && at.width)
    v = e.splat(v, at.width);
  return cache[n] = v;
}

void RowProgram::emitSegment(int segment, Num row) {
  SmallVector<int> reductions, stored;
  for (auto [i, n] : llvm::enumerate(nodes)) {
    if (n.segment != segment)
      continue;
    if (n.reduction != Reduction::None)
      reductions.push_back(i);
    else if (n.space == Space::Full && (!n.stores.empty() || n.scratch >= 0))
      stored.push_back(i);
  }
  auto body = [&](Num column, int64_t width) {
    Position at{row, column, width};
    SmallVector<Num> &cache = atColumn[column.v];
    cache.resize(nodes.size());
    SmallVector<std::pair<int, Num>> values;
    for (int n : stored)
      values.push_back({n, value(n, at, cache, segment)});
    Emitter::Carried addends;
    for (int r : reductions)
      addends.push_back(value(nodes[r].args[0], at, cache, segment));
    for (auto [n, v] : values) { // after all loads: a result may lie where an operand lies
      for (Ptr to : nodes[n].stores)
        to.store(v, row * columns + column);
      if (nodes[n].scratch >= 0)
        k.scratch.store(v, column + nodes[n].scratch * columns);
    }
    return addends;
  };
  if (reductions.empty()) {
    if (!stored.empty())
      e.vectors(columns, [&](Num column, int64_t width) { body(column, width); });
    return;
  }
  SmallVector<bool> isMax;
  for (int r : reductions)
    isMax.push_back(nodes[r].reduction == Reduction::Max);
  for (auto [r, total] : llvm::zip(reductions, e.reductions(columns, isMax, body)))
    rowValues[r] = total;
}

void RowProgram::emitRow(Num row) {
  int segments = 0;
  for (const Node &n : nodes)
    segments = std::max(segments, n.segment);
  Position at{row, e.integer(0), 0};
  SmallVector<Num> saved(rowValues);
  atColumn.clear();
  for (int s = 0; s <= segments; ++s) {
    for (auto [i, n] : llvm::enumerate(nodes)) {
      if (n.space != Space::Row || n.reduction != Reduction::None || n.segment != s)
        continue;
      SmallVector<Num> args;
      for (int a : n.args)
        args.push_back(rowValues[a]);
      rowValues[i] = n.eval(args, at);
    }
    emitSegment(s, row);
  }
  for (auto [i, n] : llvm::enumerate(nodes))
    if (n.space == Space::Row)
      for (Ptr to : n.stores)
        e.once([&] { to.store(rowValues[i], row); });
  rowValues = saved;
}

void RowProgram::emit() {
  // A space without dims has one row, and all values are per row.
  if (shape.empty())
    for (Node &n : nodes)
      n.space = Space::Row;
  schedule();
  k.scratchBytes = numScratch * columns * 4;
  rowValues.resize(nodes.size());
  Position nowhere{e.integer(0), e.integer(0), 0};
  for (auto [i, n] : llvm::enumerate(nodes))
    if (n.space == Space::Scalar) {
      SmallVector<Num> args;
      for (int a : n.args)
        args.push_back(rowValues[a]);
      rowValues[i] = n.eval(args, nowhere);
    }
  bool reduces = llvm::any_of(nodes, [](const Node &n) { return n.reduction != Reduction::None; });
  if (k.simt && shape.empty())
    k.simt->teams(1, 1, 1, [&](Num row) { emitRow(row); }); // scalars may be written over scalars
  else
    k.forItems(rows, columns, reduces, [&](Num row) { emitRow(row); });
}
