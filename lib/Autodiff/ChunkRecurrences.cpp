//===- ChunkRecurrences.cpp - Recurrences in chunks that ranks can have ---------------------===//
// A recurrence along the sequence becomes two: one within each chunk of the sequence, which starts from state 0, and
// one over the last states of the chunks. An element is then the result within its chunk, plus the state before the
// chunk times the product of the factors from the start of the chunk up to the element.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_CHUNKRECURRENCES
#include "pc/Autodiff/Passes.h"

#include "mlir/IR/Builders.h"
#include "pc/IR/DimClasses.h"
#include "llvm/ADT/StringExtras.h"
#include <set>

using namespace mlir;
using namespace pc;

namespace {

/// A value with the names of its dims.
struct Named {
  Value value;
  SmallVector<std::string, 6> dims;

  int64_t find(StringRef name) const { return llvm::find(dims, name) - dims.begin(); }
  bool has(StringRef name) const { return llvm::is_contained(dims, name); }
  std::string text() const { return llvm::join(dims, " "); }
  RankedTensorType type() const { return cast<RankedTensorType>(value.getType()); }
  int64_t size(StringRef name) const { return type().getDimSize(find(name)); }
};

/// Writes the ops that replace one recurrence. `along` has the index (chunk, step).
class ChunkWriter {
public:
  ChunkWriter(RecurrenceOp op, int64_t chunks)
      : builder(op), loc(op.getLoc()), reverse(op.getReverseAttr()), along(op.getAlong()), chunks(chunks) {
    FactorRule rule = op.getFactorRule();
    auto name = [&](Value value, ArrayRef<int> dims) {
      Named named{value, {}};
      for (int f : dims)
        named.dims.push_back(rule.factors[f].name);
      return named;
    };
    a = name(op.getA(), rule.operands[0]);
    b = name(op.getB(), rule.operands[1]);
    auto unused = [&](std::string text) {
      while (rule.find(text) >= 0)
        text += "_";
      return text;
    };
    chunk = unused("chunk");
    step = unused("step");
  }

  /// Returns the value of the recurrence.
  Value write() {
    Named factors = divided(a), inputs = divided(b);
    const int64_t steps = inputs.size(step), first = reverse ? steps - 1 : 0, last = steps - 1 - first;
    Named inside = recurrence(step, factors, inputs);
    // The product of the factors up to each step is a recurrence whose only input is the first factor.
    Named start = factors.has(step) ? columns(factors, step, first, 1) : extended(factors);
    Named products = recurrence(step, factors, columns(start, step, -first, steps));
    Named states = recurrence(chunk, without(step, columns(products, step, last, 1)),
                              without(step, columns(inside, step, last, 1)));
    Named before = columns(states, chunk, reverse ? 1 : -1, chunks);
    Value more =
        EinsumOp::create(builder, loc, inside.type(), products.text() + ", " + before.text() + " -> " + inside.text(),
                         ValueRange{products.value, before.value});
    Value all = AddOp::create(builder, loc, inside.type(), inside.value, more);
    return ReshapeOp::create(builder, loc, b.value.getType(), inside.text() + " -> " + merged(b), all);
  }

private:
  static RankedTensorType withShape(Named like, ArrayRef<int64_t> shape) {
    return RankedTensorType::get(shape, like.type().getElementType());
  }

  /// The dims of `x` for the spec of a reshape, with "(chunk step)" for the sequence.
  std::string merged(const Named &x) const {
    return llvm::join(
        llvm::map_range(x.dims,
                        [&](const std::string &dim) { return dim == along ? "(" + chunk + " " + step + ")" : dim; }),
        " ");
  }

  /// `x` with two dims instead of the sequence, if it has one.
  Named divided(const Named &x) {
    if (!x.has(along))
      return x;
    Named result;
    SmallVector<int64_t> shape;
    for (auto [dim, size] : llvm::zip(x.dims, x.type().getShape())) {
      if (dim != along) {
        result.dims.push_back(dim);
        shape.push_back(size);
        continue;
      }
      result.dims.append({chunk, step});
      shape.append({chunks, size / chunks});
    }
    result.value = ReshapeOp::create(builder, loc, withShape(x, shape), merged(x) + " -> " + result.text(), x.value);
    return result;
  }

  Named recurrence(const std::string &dim, const Named &factors, const Named &inputs) {
    std::string spec = factors.text() + ", " + inputs.text() + " -> " + inputs.text();
    return {RecurrenceOp::create(builder, loc, inputs.type(), builder.getStringAttr(spec), builder.getStringAttr(dim),
                                 reverse, factors.value, inputs.value),
            inputs.dims};
  }

  /// `size` entries of `x` along `dim`, beginning with entry `from`; entries outside of x are 0.
  Named columns(const Named &x, const std::string &dim, int64_t from, int64_t size) {
    SmallVector<int64_t> shape(x.type().getShape());
    shape[x.find(dim)] = size;
    return {ColumnsOp::create(builder, loc, withShape(x, shape), x.value, builder.getI64IntegerAttr(x.find(dim)),
                              builder.getI64IntegerAttr(from), IntegerAttr(), IntegerAttr()),
            x.dims};
  }

  /// `x` with one step as its first dim.
  Named extended(const Named &x) {
    Named result = x;
    result.dims.insert(result.dims.begin(), step);
    SmallVector<int64_t> shape(x.type().getShape());
    shape.insert(shape.begin(), 1);
    result.value =
        EinsumOp::create(builder, loc, withShape(x, shape), x.text() + " -> " + result.text(), ValueRange{x.value});
    return result;
  }

  /// `x` without a dim of size 1.
  Named without(const std::string &dim, const Named &x) {
    Named result = x;
    result.dims.erase(result.dims.begin() + x.find(dim));
    SmallVector<int64_t> shape(x.type().getShape());
    shape.erase(shape.begin() + x.find(dim));
    result.value =
        EinsumOp::create(builder, loc, withShape(x, shape), x.text() + " -> " + result.text(), ValueRange{x.value});
    return result;
  }

  OpBuilder builder;
  Location loc;
  UnitAttr reverse;
  std::string along, chunk, step;
  int64_t chunks;
  Named a, b;
};

/// The pass pc-chunk-recurrences.
struct ChunkRecurrences : pc::impl::ChunkRecurrencesBase<ChunkRecurrences> {
  using ChunkRecurrencesBase::ChunkRecurrencesBase;

  /// A sequence whose length is not a multiple of the chunks is left as it is. The tactic that splits it then reports
  /// an error.
  void runOnOperation() override {
    if (chunks < 1) {
      getOperation().emitError() << "pc-chunk-recurrences: chunks must be positive, got " << int64_t(chunks);
      return signalPassFailure();
    }
    DimClasses classes(getOperation());
    std::set<unsigned> sequences;
    getOperation().walk([&](InputOp input) {
      for (auto [d, name] : llvm::enumerate(input.getDims().getAsValueRange<StringAttr>()))
        if (name == "sequence")
          sequences.insert(classes.classOf(input.getValue(), static_cast<int64_t>(d)));
    });
    SmallVector<RecurrenceOp> found;
    getOperation().walk([&](RecurrenceOp op) {
      FactorRule rule = op.getFactorRule();
      int64_t at = llvm::find(rule.operands[1], rule.find(op.getAlong())) - rule.operands[1].begin();
      if (chunks > 1 && sequences.contains(classes.classOf(op.getB(), at)) &&
          cast<RankedTensorType>(op.getB().getType()).getDimSize(at) % chunks == 0)
        found.push_back(op);
    });
    for (RecurrenceOp op : found) {
      op.getH().replaceAllUsesWith(ChunkWriter(op, chunks).write());
      op.erase();
    }
  }
};
} // namespace
