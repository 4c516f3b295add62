//===- Views.cpp - Views, and rows by id, against the interpreter ---------===//
#include "Programs.h"

#include <random>

using namespace mlir;
using Dims = std::vector<int64_t>;

/// Tests pc.columns along dim `dim` of `shape`: entry j of the result is entry (`from` + j `step`) / `every`, for
/// `size` entries. Then it tests the inverse, in which `step` and `every` are exchanged.
static void columns(MLIRContext &context, const Dims &shape, size_t dim, int64_t from, int64_t size, int64_t step = 1,
                    int64_t every = 1) {
  Dims to = shape;
  to[dim] = size;
  auto numbers = [&](int64_t from, int64_t step, int64_t every) {
    return " dim " + std::to_string(dim) + " from " + std::to_string(from) + " step " + std::to_string(step) +
           " every " + std::to_string(every) + " : ";
  };
  Program p;
  std::string x = p.parameter(shape), y = p.parameter(to);
  p.op("%a = pc.columns " + x + numbers(from, step, every) + "(" + type(shape) + ") -> " + type(to));
  p.op("%b = pc.columns " + y + numbers(-from, every, step) + "(" + type(to) + ") -> " + type(shape));
  p.output("%a", to);
  p.output("%b", shape);
  check(context, "columns" + numbers(from, step, every) + type(shape) + " -> " + type(to), p.text(), false);
}

/// Tests pc.resize of dim `dim` of `shape` to `size`.
static void resize(MLIRContext &context, Dims shape, int64_t dim, int64_t size) {
  Dims resized = shape;
  resized[dim] = size;
  Program p;
  std::string x = p.parameter(shape);
  p.op("%a = pc.scale " + x + " by 2.0 : (" + type(shape) + ") -> " + type(shape));
  p.op("%b = pc.resize %a dim " + std::to_string(dim) + " : (" + type(shape) + ") -> " + type(resized));
  p.output("%b", resized);
  check(context, "resize " + type(shape) + " -> " + type(resized), p.text(), false);
}

/// Tests a value whose dims are merged or divided. The operand has later readers, or has none.
static void reshape(MLIRContext &context, const std::string &spec, const Dims &from, const Dims &to) {
  std::string t = " : (" + type(from) + ") -> " + type(from), u = " : (" + type(to) + ") -> " + type(to);
  for (bool livesOn : {false, true}) {
    Program p;
    p.op("%a = pc.scale " + p.parameter(from) + " by 2.0" + t);
    p.op("%b = pc.reshape \"" + spec + "\" %a : (" + type(from) + ") -> " + type(to));
    p.op("%c = pc.exp %b" + u);
    p.output("%c", to);
    if (livesOn) {
      p.output("%a", from);
      p.output("%b", to);
    }
    check(context, "reshape " + spec, p.text(), false);
  }
}

/// Stacks two values of shape `each`, adds zeros up to `entries`, and reads each entry.
static void stack(MLIRContext &context, const Dims &each, int64_t entries) {
  Dims stack = each;
  stack.insert(stack.begin(), entries);
  Program p;
  std::string x = p.parameter(each), y = p.parameter(each);
  p.op("%s = pc.stack " + x + ", " + y + " : (" + type(each) + ", " + type(each) + ") -> " + type(stack));
  p.output("%s", stack);
  for (int64_t entry = 0; entry < entries; ++entry) {
    std::string result = "%e" + std::to_string(entry);
    p.op(result + " = pc.unstack %s at " + std::to_string(entry) + " : (" + type(stack) + ") -> " + type(each));
    p.output(result, each);
  }
  check(context, "stack " + type(stack), p.text(), false);
}

/// Looks up rows by ids. The table has `rows` rows of elements with dims `each`; ids have the dims `ids`. The first
/// `batch` of these are also dims of the table.
static void lookup(MLIRContext &context, int64_t rows, const Dims &ids, const Dims &each, size_t batch) {
  Dims table(ids.begin(), ids.begin() + batch), found = ids;
  table.push_back(rows);
  table.insert(table.end(), each.begin(), each.end());
  found.insert(found.end(), each.begin(), each.end());
  Program p;
  std::string x = p.parameter(table), y = p.parameter(found), index = p.targets(ids);
  std::string by = ", " + index + " batch " + std::to_string(batch), i = type(ids, "i32");
  p.op("%a = pc.embedding " + x + by + " : (" + type(table) + ", " + i + ") -> " + type(found));
  p.op("%b = pc.embedding_grad " + y + by + " : (" + type(found) + ", " + i + ") -> " + type(table));
  p.op("%c = pc.embedding_grad " + y + by + " padding 1 : (" + type(found) + ", " + i + ") -> " + type(table));
  p.op("%d = pc.add %c, " + x + " : (" + type(table) + ", " + type(table) + ") -> " + type(table));
  p.output("%a", found);
  p.output("%b", table);
  p.output("%d", table);
  check(context, "rows of " + type(table) + " by " + i, p.text(rows), false);
}

void checkViews(MLIRContext &context) {
  for (const Dims &shape : {Dims{2, 3, 7}, Dims{3, 40}, Dims{20}})
    for (size_t dim = 0; dim < shape.size(); ++dim)
      for (int64_t size : {3, 12})
        for (int64_t from : {-9, -5, 0, 1, 9})
          columns(context, shape, dim, from, size);
  for (const Dims &shape : {Dims{2, 9, 5}, Dims{4, 33}})
    for (size_t dim = 0; dim < 2; ++dim) {
      columns(context, shape, dim, -1, 5, 2);
      columns(context, shape, dim, 2, 7, 3, 2);
      columns(context, shape, dim, 40, 2, 2);
    }
  columns(context, {2, 9000}, 1, -3, 9000);
  columns(context, {9000, 3}, 0, 5, 4096);
  for (int64_t size : {1, 4, 7, 9, 40}) {
    resize(context, {7}, 0, size);
    resize(context, {7, 5}, 0, size);
    resize(context, {3, 7}, 1, size);
    resize(context, {2, 7, 1, 3}, 1, size);
  }
  for (int64_t size : {3, 4097, 8191, 8192, 8193, 20000})
    resize(context, {2, 8192}, 1, size);
  reshape(context, "b (h w) c -> b h w c", {2, 6, 5}, {2, 2, 3, 5});
  reshape(context, "b h w c -> (b h) (w c)", {2, 2, 3, 5}, {4, 15});
  reshape(context, "(a b) c -> a (b c)", {6, 5}, {2, 15});
  reshape(context, "a -> a", {1}, {1});
  reshape(context, "a b -> (a b)", {5, 2000}, {10000});
  for (const Dims &each : {Dims{7}, Dims{3, 33}, Dims{2, 4096}, Dims{3, 2500}})
    for (int64_t entries : {2, 4})
      stack(context, each, entries);
  for (size_t batch = 0; batch <= 2; ++batch) {
    lookup(context, 7, {2, 3}, {5}, batch);
    lookup(context, 7, {2, 3}, {}, batch);
    lookup(context, 40, {3, 33}, {2, 4}, batch);
  }
  lookup(context, 5000, {2, 20}, {10}, 1);
}
