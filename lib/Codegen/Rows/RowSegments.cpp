//===- RowSegments.cpp - Writes the nodes of a row kernel segment by segment ----------------===//
// A segment is one pass over the columns of a row. A node that needs the result of a reduction goes into the segment
// after it. Values that a later segment needs are kept in a result, in scratch memory or in registers, or computed
// again.
//===-----------------------------------------------------------------------------===//
#include "../Kernels/Kernels.h"
#include "RowGraph.h"

using namespace mlir;
using namespace pc;
using namespace pc::rowprogram;
using kernels::Emitter;

/// The most bytes of shared memory for rows: two blocks of a kernel fit on a multiprocessor of sm_90, and one of sm_80.
static constexpr int64_t mostKeptBytes = 112 * 1024;

/// Assigns nodes to segments, and decides for each value how a later segment gets it.
void RowProgram::schedule() {
  for (Node &n : nodes) {
    for (int a : n.args) {
      const Node &arg = nodes[a];
      // The result of a reduction is available in the segment after the loop that computes it.
      bool later = arg.reduction != Reduction::None && n.reduction != Reduction::SumExp;
      n.segment = std::max(n.segment, arg.segment + later);
    }
  }
  // On a CPU, an element that a later segment reads is kept in the result's buffer, if it is part of a result, or in a
  // scratch row; loads are repeated. On a GPU, the element stays in registers or is computed again from the operands.
  // The operands are still intact, because a fusion with a reduction overwrites an operand only in its last segment
  // (mayShareHome).
  if (k.simt)
    return keepRows();
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

/// Whether the first column loop and a later one need elements of node `load`.
bool RowProgram::isReadAgain(int load) const {
  bool inFirst = false, inLater = false;
  SmallVector<bool> needs(nodes.size()); // whether a node's elements are computed from those of `load`
  needs[load] = true;
  for (size_t i = load + 1; i < nodes.size(); ++i) {
    const Node &n = nodes[i];
    if (llvm::none_of(n.args, [&](int arg) { return needs[arg]; }))
      continue;
    needs[i] = n.space == Space::Full;
    if (n.reduction != Reduction::None || (n.space == Space::Full && !n.stores.empty()))
      (n.segment ? inLater : inFirst) = true;
  }
  return inFirst && inLater;
}

/// Keeps loaded rows in shared memory if they exceed the registers and several segments read them. A thread reads only
/// what it has written itself, so no barrier is needed.
void RowProgram::keepRows() {
  if (columns <= kernels::SimtEmitter::longestKept)
    return;
  int64_t bytes = 0;
  for (auto [i, n] : llvm::enumerate(nodes)) {
    if (!n.loaded || !isReadAgain(static_cast<int>(i)))
      continue;
    int64_t more = columns * n.loaded.getIntOrFloatBitWidth() / 8;
    if (bytes + more > mostKeptBytes)
      continue;
    bytes += more;
    n.kept = k.simt->sharedTile(columns, n.loaded);
  }
}

/// The value of node n inside the column loop of `segment`.
Num RowProgram::value(int n, const Position &at, SmallVectorImpl<Num> &cache, int segment) {
  Node &nd = nodes[n];
  if (nd.space != Space::Full)
    return rowValues[n];
  if (cache[n].v)
    return cache[n];
  if (nd.segment < segment && nd.kept.base)
    return cache[n] = nd.kept.load(at.column, at.width);
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

/// Writes one loop over the columns, with all sums and maxima of the segment, and the values that later segments or
/// results need.
void RowProgram::emitSegment(int segment, Num row) {
  SmallVector<int> reductions, sums, stored;
  SmallVector<bool> isMax;
  for (auto [i, n] : llvm::enumerate(nodes)) {
    if (n.segment != segment)
      continue;
    if (n.reduction == Reduction::OverRows) {
      sums.push_back(i);
    } else if (n.reduction != Reduction::None) {
      reductions.push_back(i);
      isMax.push_back(n.reduction == Reduction::Max);
    } else if (n.space == Space::Full && (!n.stores.empty() || n.scratch >= 0 || n.kept.base)) {
      stored.push_back(i);
    }
  }
  auto body = [&](Num column, int64_t width) {
    Position at{row, column, width};
    // Segments that visit the same column (in registers of a GPU thread) share values.
    SmallVector<Num> &cache = atColumn[column.v];
    cache.resize(nodes.size());
    Emitter::Carried values;
    for (int n : llvm::concat<int>(reductions, sums))
      values.push_back(value(nodes[n].args[0], at, cache, segment));
    for (int n : stored)
      values.push_back(value(n, at, cache, segment));
    return values;
  };
  // Stores follow the loads, because a result may overwrite an operand.
  auto store = [&](Num column, int64_t, ArrayRef<Num> values) {
    for (auto [n, v] : llvm::zip(sums, values))
      addToSum(nodes[n].sum, column, v);
    for (auto [n, v] : llvm::zip_equal(stored, values.drop_front(sums.size()))) {
      for (Ptr to : nodes[n].stores)
        to.store(v, row * columns + column);
      if (nodes[n].scratch >= 0)
        k.scratch.store(v, column + nodes[n].scratch * columns);
      if (nodes[n].kept.base)
        nodes[n].kept.store(v, column);
    }
  };
  std::optional<kernels::SimtEmitter::SumExp> sumExp;
  for (auto [i, r] : llvm::enumerate(reductions))
    if (nodes[r].reduction == Reduction::SumExp) {
      int64_t max = std::distance(reductions.begin(), llvm::find(reductions, nodes[r].args[1]));
      sumExp = {max, static_cast<int64_t>(i)};
    }
  if (!reductions.empty())
    for (auto [r, total] : llvm::zip(reductions, sumExp ? k.simt->reductions(columns, isMax, body, store, sumExp)
                                                        : e.reductions(columns, isMax, body, store)))
      rowValues[r] = total;
  else if (!stored.empty() || !sums.empty())
    e.vectors(columns, body, store);
}

/// One loop over the columns per segment. Reductions are combined between segments.
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
    if (n.space == Space::Row && n.reduction != Reduction::OverRows)
      for (Ptr to : n.stores)
        e.once([&] { to.store(rowValues[i], row); });
  rowValues = saved;
}

void RowProgram::addToSum(int sum, Num column, Num value) {
  if (k.simt)
    return k.simt->addToSum(sum, column, value);
  Num at = column + (numScratch + sum) * columns;
  k.scratch.store(k.scratch.load(at, value.width()) + value, at);
}

/// Emits the rows of a program that sums over them: on a CPU one item, which keeps the sums in its scratch memory; on a
/// GPU, teams that write the sums of their rows to the workspace.
void RowProgram::emitRows() {
  if (k.simt) {
    bool readsOnly = llvm::all_of(nodes, [](const Node &n) {
      return n.reduction == Reduction::OverRows || (n.reduction == Reduction::None && n.stores.empty());
    });
    return k.simt->rowSums(rows, columns, numSums, readsOnly ? 4 : 1, k.workspace, [&](Num row) { emitRow(row); });
  }
  k.forItems(1, columns, /*reduces=*/false, [&](Num) {
    (k.scratch + e.integer(numScratch * columns)).clear(e.integer(numSums * columns));
    e.loop(e.integer(0), e.integer(rows), 1, [&](Num row) { emitRow(row); });
    e.vectors(columns, [&](Num column, int64_t width) {
      for (const Node &n : nodes)
        if (n.reduction == Reduction::OverRows)
          for (Ptr to : n.stores)
            to.store(k.scratch.load(column + (numScratch + n.sum) * columns, width), column);
    });
  });
}

/// On a GPU, the second kernel adds the sums that the first one wrote to the workspace.
void RowProgram::emitSums() {
  const int64_t blocks = k.simt->rowSumBlocks(rows, columns);
  k.simt->setWidest(4);
  auto terms = [&](Num block, Num column, int64_t width) {
    Emitter::Carried sums;
    for (int64_t sum = 0; sum < numSums; ++sum)
      sums.push_back(k.workspace.load((block + sum * blocks) * columns + column, width));
    return sums;
  };
  kernels::columnSums(k, blocks, columns, numSums, terms, [&](Num column, const Emitter::Carried &totals) {
    for (const Node &n : nodes)
      if (n.reduction == Reduction::OverRows)
        for (Ptr to : n.stores)
          to.store(totals[n.sum], column);
  });
}

/// The number of items and the width of vectors follow from the space and the types.
void RowProgram::emit() {
  // A space without dims has one row, and all values are per row.
  if (shape.empty())
    for (Node &n : nodes)
      n.space = Space::Row;
  auto has = [&](bool (Type::*isOf)() const) { return llvm::any_of(rowTypes, [&](Type t) { return (t.*isOf)(); }); };
  if (k.simt && has(&Type::isF32) && has(&Type::isBF16))
    k.simt->mixRows(columns);
  if (k.part == 1)
    return emitSums();
  schedule();
  if (!k.simt)
    k.scratchBytes = (scratchElements() + numDrawn) * 4;
  rowValues.resize(nodes.size());
  Position nowhere{e.integer(0), e.integer(0), 0};
  // Scalars are the same for all rows, so they are computed once, before the loop over rows.
  for (auto [i, n] : llvm::enumerate(nodes))
    if (n.space == Space::Scalar) {
      SmallVector<Num> args;
      for (int a : n.args)
        args.push_back(rowValues[a]);
      rowValues[i] = n.eval(args, nowhere);
    }
  bool reduces = llvm::any_of(nodes, [](const Node &n) { return n.reduction != Reduction::None; });
  bool wide = llvm::any_of(nodes, [](const Node &n) { return n.space == Space::Full; });
  if (numSums)
    emitRows();
  else if (k.simt && shape.empty())
    k.simt->teams(1, 1, 1, [&](Num row) { emitRow(row); }); // scalar results may overwrite scalar operands
  else
    k.forItems(rows, wide ? columns : 1, reduces, [&](Num row) { emitRow(row); });
}
