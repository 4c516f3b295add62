//===- Views.cpp - Entries along a dim, and rows by id ----------------------------------------===//
// Defines ops that bring elements to other places, in double precision. Sizes are those of the tensors, since all ops
// here are local.
//===-----------------------------------------------------------------------------===//
#include "Evaluators.h"
#include "pc/IR/PC.h"

using namespace pc;

/// The number of elements before a dim, along it, and after it.
static std::array<int64_t, 3> around(const Shape &shape, int64_t dim) {
  llvm::ArrayRef<int64_t> sizes(shape);
  return {numElements(sizes.take_front(dim)), shape[dim], numElements(sizes.drop_front(dim + 1))};
}

/// Entry j of the result is entry (from + j step) / every of x, if that is a whole number in range.
Tensors pc::columns(ColumnsOp op, Inputs in, const Shape &shape) {
  const Tensor &x = *in[0];
  Tensor y(shape);
  auto [outer, written, inner] = around(shape, op.along());
  int64_t read = x.shape[op.along()];
  auto from = static_cast<int64_t>(op.getFrom()), step = static_cast<int64_t>(op.getStep()),
       every = static_cast<int64_t>(op.getEvery());
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t j = 0; j < written; ++j)
      if (int64_t i = from + j * step; i >= 0 && i % every == 0 && i / every < read)
        for (int64_t r = 0; r < inner; ++r)
          y[(o * written + j) * inner + r] = x[(o * read + i / every) * inner + r];
  return {y};
}

Tensors pc::stack(Inputs in, const Shape &shape) {
  Tensor y(shape);
  int64_t at = 0;
  for (const Tensor *x : in)
    for (int64_t i = 0; i < x->size(); ++i)
      y[at++] = (*x)[i];
  return {y};
}

Tensors pc::unstack(Inputs in, int64_t index) {
  const Tensor &x = *in[0];
  Tensor y(Shape(x.shape.begin() + 1, x.shape.end()));
  for (int64_t i = 0; i < y.size(); ++i)
    y[i] = x[index * y.size() + i];
  return {y};
}

/// Calls `row(i, r)` for each id i that is in its table. r is the number of its row among the rows of all tables.
template <typename Op, typename F>
static void forRows(Op op, const Tensor &ids, const Shape &tables, int64_t offset, F row) {
  int64_t batch = op.getBatch(), rows = tables[batch];
  int64_t perTable = std::max<int64_t>(1, numElements(llvm::ArrayRef<int64_t>(ids.shape).drop_front(batch)));
  for (int64_t i = 0; i < ids.size(); ++i)
    if (int64_t r = static_cast<int64_t>(ids[i]) - offset; r >= 0 && r < rows)
      row(i, i / perTable * rows + r);
}

/// Ids outside of this rank's part of the table give zeros.
Tensors pc::embedding(EmbeddingOp op, Inputs in, const Shape &shape, int64_t offset) {
  const Tensor &table = *in[0], &ids = *in[1];
  int64_t width = around(table.shape, op.getBatch())[2];
  Tensor y(shape);
  forRows(op, ids, table.shape, offset, [&](int64_t i, int64_t row) {
    for (int64_t e = 0; e < width; ++e)
      y[i * width + e] = table[row * width + e];
  });
  return {y};
}

/// Rows of equal ids are added in the order of the ids. The id of padding gets no gradient.
Tensors pc::embeddingGrad(EmbeddingGradOp op, Inputs in, const Shape &shape, int64_t offset) {
  const Tensor &dy = *in[0], &ids = *in[1];
  int64_t width = around(shape, op.getBatch())[2];
  Tensor gradient(shape);
  forRows(op, ids, shape, offset, [&](int64_t i, int64_t row) {
    if (static_cast<int64_t>(ids[i]) != op.getPadding())
      for (int64_t e = 0; e < width; ++e)
        gradient[row * width + e] += dy[i * width + e];
  });
  return {gradient};
}
