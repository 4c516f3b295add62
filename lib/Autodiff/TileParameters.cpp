//===- TileParameters.cpp - Splits large parameters, and what is computed with them -------------===//
// Input: a model program, and globs with numbers of tiles. Result: a parameter that fits becomes several, each with its
// box of the tensor. The ops from them to the product that sums over the tiled dim are repeated for each tile, one tile
// after the other, and the sums of the tiles are added. So a plan that gathers or carries parameters needs memory only
// for one tile.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_TILEPARAMETERS
#include "pc/Autodiff/Passes.h"

#include "pc/IR/DimClasses.h"
#include "pc/IR/NameGlobs.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace pc;

namespace {

/// Which parameters are split into how many tiles.
struct Request {
  NameGlobs globs;
  int64_t tiles = 0;
};

/// A dim of the program that is tiled.
struct TiledDim {
  int64_t tiles = 0, size = 0;  ///< the number of tiles, and the indices of each
  StringRef asked;              ///< the name of a parameter that the user asked to tile along it
  SmallVector<Operation *> ops; ///< all ops that have the dim, in order; the last one sums over it
  /// For each of these ops, the dim of each result that is tiled; -1 for a result without it.
  SmallVector<SmallVector<int64_t, 2>> dims;
};

/// Ops whose tile is the same op on tiles of its operands.
bool worksByTile(Operation *op) {
  if (auto einsum = dyn_cast<EinsumOp>(op))
    return !einsum.getRoutedAttr();
  if (auto attention = dyn_cast<AttentionOp>(op))
    return !attention.getDropAttr();
  return isa<AddOp, SubOp, ScaleOp, CastOp, LogOp, ExpOp, RecipOp, SqrtOp, SinOp, CosOp, SelectOp, ActivationOp,
             ClampOp, RMSNormOp, RopeOp>(op);
}

/// The source of a tile: indices [first, first + size) of dim `dim` of a parameter of this shape. The tensor is viewed
/// with the parameter's dims. Returns null if the tensor's dims cannot be divided into these.
SourceAttr sourceOfTile(SourceAttr source, ArrayRef<int64_t> shape, int64_t dim, int64_t first, int64_t size) {
  SmallVector<int64_t> view, start, sizes;
  size_t next = 0; // of the parameter's dims
  for (auto [whole, begin, count] : llvm::zip_equal(source.boxShape(), source.getStart(), source.getSize())) {
    size_t from = next;
    for (int64_t covered = 1; next < shape.size() && (next == from || covered < count);)
      covered *= shape[next++];
    ArrayRef<int64_t> dims = shape.slice(from, next - from);
    int64_t inner = 1, covered = 1;
    for (auto [i, each] : llvm::enumerate(dims)) {
      covered *= each;
      inner *= i ? each : 1;
    }
    if (dims.empty() || covered != count || whole % inner || begin % inner)
      return {};
    for (auto [i, each] : llvm::enumerate(dims)) {
      view.push_back(i ? each : whole / inner);
      start.push_back(i ? 0 : begin / inner);
      sizes.push_back(each);
    }
  }
  if (next != shape.size())
    return {};
  start[dim] += first;
  sizes[dim] = size;
  ArrayRef<int64_t> viewed = ArrayRef(view) == source.getShape() ? ArrayRef<int64_t>() : ArrayRef(view);
  return SourceAttr::get(source.getContext(), source.getTensor(), source.getShape(), start, sizes, viewed);
}

/// The pass pc-tile-parameters. It finds the dims to tile and all ops that have them, and then rewrites these ops.
struct TileParameters : pc::impl::TileParametersBase<TileParameters> {
  using TileParametersBase::TileParametersBase;

  /// Reads the requests, divides the dims that they name, and then rewrites the ops of each divided dim. An op belongs
  /// to at most one of these dims.
  void runOnOperation() override {
    SmallVector<Request, 0> requests;
    SmallVector<StringRef> words;
    llvm::SplitString(tiles, words);
    for (StringRef word : words)
      if (failed(read(word, requests.emplace_back())))
        return signalPassFailure();
    DimClasses all(getOperation());
    classes = &all;
    // The ops of each class of dims, in program order, each once.
    getOperation().walk([&](Operation *op) {
      for (Value value : llvm::concat<Value>(op->getOperands(), op->getResults()))
        for (unsigned id : classesOf(value))
          if (SmallVector<Operation *> &ops = opsOf[id]; ops.empty() || ops.back() != op)
            ops.push_back(op);
    });
    WalkResult walked = getOperation().walk([&](ParameterOp parameter) -> WalkResult {
      for (Request &request : requests) {
        FailureOr<bool> fits = request.globs.fits(parameter);
        if (failed(fits) || (*fits && failed(choose(parameter, request))))
          return WalkResult::interrupt();
      }
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return signalPassFailure();
    for (const Request &request : requests)
      if (failed(request.globs.requireUsed(getOperation(), "--tile")))
        return signalPassFailure();
    for (auto &[id, dim] : dims)
      rewrite(dim);
    for (auto &[id, dim] : dims)
      for (Operation *op : llvm::reverse(dim.ops))
        op->erase();
  }

private:
  LogicalResult read(StringRef word, Request &request) {
    auto [globs, number] = word.rsplit(':');
    if (number.getAsInteger(10, request.tiles) || request.tiles < 2)
      return getOperation().emitError() << "--tile=" << word
                                        << ": expected GLOB:N with N of at least 2, as in '*.mlp.*:4'";
    std::string why;
    FailureOr<NameGlobs> read = NameGlobs::parse(globs, why);
    if (failed(read))
      return getOperation().emitError() << "--tile=" << word << " " << why;
    request.globs = std::move(*read);
    return success();
  }

  SmallVector<unsigned> classesOf(Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return llvm::map_to_vector(llvm::seq<int64_t>(0, type ? type.getRank() : 0),
                               [&](int64_t dim) { return classes->classOf(value, dim); });
  }

  /// Tiles the parameter along its first dim that can be tiled. A vector without such a dim, like the bias of the
  /// result, stays whole.
  LogicalResult choose(ParameterOp parameter, const Request &request) {
    std::string reasons;
    SmallVector<unsigned> own = classesOf(parameter.getValue());
    for (auto [name, id] : llvm::zip_equal(parameter.getDims().getAsValueRange<StringAttr>(), own)) {
      if (auto *known = dims.find(id); known != dims.end()) {
        if (const TiledDim &dim = known->second; dim.tiles != request.tiles)
          return parameter.emitError() << "--tile: '" << parameter.getName() << "' would have " << request.tiles
                                       << " tiles, but '" << dim.asked << "' has " << dim.tiles
                                       << " along the same dim";
        return success();
      }
      std::string why;
      if (std::optional<TiledDim> dim = dimOf(id, request.tiles, why)) {
        dim->asked = parameter.getName();
        dims[id] = std::move(*dim);
        return success();
      }
      reasons += (reasons.empty() ? "" : "; ") + name.str() + ": " + why;
    }
    if (own.size() < 2)
      return success();
    return parameter.emitError() << "--tile: '" << parameter.getName() << "' cannot have " << request.tiles
                                 << " tiles (" << reasons << ")";
  }

  /// The dim `id` divided into `tiles`. If it cannot be tiled, returns std::nullopt and sets `why`.
  std::optional<TiledDim> dimOf(unsigned id, int64_t tiles, std::string &why) {
    auto cannot = [&](std::string reason) {
      why = std::move(reason);
      return std::nullopt;
    };
    TiledDim tiled;
    tiled.tiles = tiles;
    for (Operation *op : opsOf[id]) {
      std::string name = "'" + op->getName().getStringRef().str() + "'";
      // The dim of class `id` in a value; -1 if there is none, -2 if there are several.
      auto of = [&](Value value) {
        SmallVector<unsigned> all = classesOf(value);
        auto *at = llvm::find(all, id);
        bool twice = llvm::count(all, id) > 1;
        return twice ? -2 : at == all.end() ? -1 : at - all.begin();
      };
      SmallVector<int64_t, 2> results = llvm::map_to_vector<2>(op->getResults(), of);
      int64_t size = 0;
      for (Value value : llvm::concat<Value>(op->getOperands(), op->getResults()))
        if (int64_t dim = of(value); dim >= 0)
          size = cast<RankedTensorType>(value.getType()).getDimSize(dim);
        else if (dim == -2)
          return cannot(name + " has a value with this dim twice");
      if (size % tiles)
        return cannot("its size of " + std::to_string(size) + " is not a multiple");
      tiled.size = size / tiles;
      // Ops between the first and the last one compute each tile separately. The last one is a product that sums over
      // the dim, so the tiles become one value again.
      bool sums = llvm::all_of(results, [](int64_t dim) { return dim < 0; });
      if (auto parameter = dyn_cast<ParameterOp>(op)) {
        if (!parameter.getSource() || parameter.getValid() ||
            !sourceOfTile(*parameter.getSource(), parameter.getValue().getType().getShape(), results[0], 0, tiled.size))
          return cannot("'" + parameter.getName().str() + "' in tiles is not made of boxes of its tensor");
      } else if (!worksByTile(op) || needsAll(op, id) ||
                 (sums ? !isa<EinsumOp>(op) : llvm::is_contained(results, -1))) {
        return cannot(name + " needs all of the dim");
      }
      if (llvm::any_of(op->getOperands(), [&](Value value) { return of(value) >= 0 && !value.getDefiningOp(); }))
        return cannot(name + " reads an argument of the program with this dim");
      if (op != opsOf[id].back() && sums)
        return cannot(name + " sums over the dim, which is used after it");
      if (op == opsOf[id].back() && !sums)
        return cannot("no product sums over the dim");
      tiled.ops.push_back(op);
      tiled.dims.push_back(std::move(results));
    }
    for (auto &[other, dim] : dims)
      if (llvm::any_of(dim.ops, [&](Operation *op) { return llvm::is_contained(tiled.ops, op); }))
        return cannot("'" + dim.asked.str() + "' is tiled along another dim of the same products");
    return tiled;
  }

  /// Whether the rule of the op requires the whole dim, or divides it.
  bool needsAll(Operation *op, unsigned id) {
    FactorRule rule = cast<FactorOpInterface>(op).getFactorRule();
    auto needs = [&](Value value, ArrayRef<int> factors) {
      for (auto [found, factor] : llvm::zip_equal(classesOf(value), factors))
        if (found == id && (rule.factors[factor].whole || isDivided(op, rule, factor)))
          return true;
      return false;
    };
    return llvm::any_of(llvm::zip(op->getOperands(), rule.operands),
                        [&](auto each) { return std::apply(needs, each); }) ||
           llvm::any_of(llvm::zip(op->getResults(), rule.results), [&](auto each) { return std::apply(needs, each); });
  }

  /// Repeats the ops once per tile, before the last op, and adds the results of the last op's copies.
  void rewrite(TiledDim &tiled) {
    Operation *last = tiled.ops.back();
    OpBuilder b(last);
    Value sum;
    for (int64_t tile = 0; tile < tiled.tiles; ++tile) {
      IRMapping values;
      for (auto [op, dims] : llvm::zip_equal(tiled.ops, tiled.dims)) {
        auto parameter = dyn_cast<ParameterOp>(op);
        Operation *copy = (parameter ? OpBuilder(op) : b).clone(*op, values);
        if (parameter)
          become(cast<ParameterOp>(copy), dims[0], tile, tiled.size);
        for (auto [result, dim] : llvm::zip_equal(copy->getResults(), dims))
          if (auto type = cast<RankedTensorType>(result.getType()); dim >= 0) {
            SmallVector<int64_t> shape(type.getShape());
            shape[dim] = tiled.size;
            result.setType(type.clone(shape));
          }
      }
      Value part = values.lookup(last->getResult(0));
      sum = sum ? AddOp::create(b, last->getLoc(), part.getType(), sum, part).getResult() : part;
    }
    last->getResult(0).replaceAllUsesWith(sum);
  }

  /// Turns a copy of a parameter into a tile of it.
  static void become(ParameterOp copy, int64_t dim, int64_t tile, int64_t size) {
    copy.setSourceAttr(sourceOfTile(*copy.getSource(), copy.getValue().getType().getShape(), dim, tile * size, size));
    copy.setName(copy.getName().str() + ":" + std::to_string(tile));
    copy->setLoc(NameLoc::get(copy.getNameAttr(), copy.getLoc())); // so that it is gathered with this unit
  }

  DimClasses *classes = nullptr;
  llvm::MapVector<unsigned, TiledDim> dims;
  llvm::DenseMap<unsigned, SmallVector<Operation *>> opsOf; ///< by class, in order
};

} // namespace
