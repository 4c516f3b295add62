//===- Parts.cpp - The parameters in a packed parameter -------------------------===//
// A parameter of experts packs one tensor per expert along a dim. Code that deals with checkpoints, keys of random
// numbers or names uses the parts. A parameter that is not packed is its own single part.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Parts.h"
#include "pc/IR/BlockCodes.h"

using namespace mlir;
using namespace pc;

ArrayRef<int64_t> pc::validShape(ParameterOp parameter) {
  if (parameter.getValid())
    return *parameter.getValid();
  return parameter.getGlobal() ? *parameter.getGlobal()
                               : cast<RankedTensorType>(parameter.getValue().getType()).getShape();
}

int64_t pc::numParts(ParameterOp parameter) { return parameter.getParts() ? parameter.getParts()->size() : 1; }

/// Parts follow each other along one dim.
SmallVector<ParameterPart> pc::partsOf(ParameterOp parameter) {
  SmallVector<int64_t> size(validShape(parameter)), start(size.size(), 0);
  if (!parameter.getParts()) {
    int64_t key = parameter.getKey() ? static_cast<int64_t>(*parameter.getKey()) : -1;
    return {{parameter.getName(), key, *parameter.getSource(), start, size}};
  }
  SmallVector<ParameterPart> parts;
  auto along = static_cast<int64_t>(*parameter.getAlong());
  for (PartAttr part : parameter.getParts()->getAsRange<PartAttr>()) {
    size[along] = part.getSize();
    parts.push_back({part.getName(), part.getKey(), part.getSource(), start, size});
    start[along] += part.getSize();
  }
  return parts;
}

/// The shape of a parameter or a state on all ranks together.
template <typename Leaf> static ArrayRef<int64_t> wholeShape(Leaf leaf) {
  return leaf.getGlobal() ? *leaf.getGlobal() : cast<RankedTensorType>(leaf.getValue().getType()).getShape();
}

std::optional<SmallVector<int64_t>> pc::blockOfState(StateOp state, ParameterOp parameter) {
  ArrayRef<int64_t> shape = wholeShape(state), whole = wholeShape(parameter);
  return shape == whole || state.getDims() != parameter.getDims() ? std::nullopt : blockOf(whole, shape);
}

std::optional<SmallVector<int64_t>> pc::dimsOfState(StateOp state, ParameterOp parameter) {
  ArrayRef<int64_t> shape = wholeShape(state), whole = wholeShape(parameter);
  if (isHistory(state))
    return shape.size() == 1 && shape[0] == numParts(parameter) * float8History ? std::optional(SmallVector<int64_t>())
                                                                                : std::nullopt;
  if (shape == whole || blockOfState(state, parameter))
    return llvm::to_vector(llvm::seq<int64_t>(0, whole.size()));
  SmallVector<int64_t> dims;
  int64_t next = 0;
  for (auto [size, text] : llvm::zip(shape, state.getDims().getAsValueRange<StringAttr>())) {
    auto [name, number] = text.split('#');
    int64_t dim = next;
    while (dim < std::ssize(whole) && cast<StringAttr>(parameter.getDims()[dim]).getValue() != name)
      ++dim;
    if (!number.empty() && number.getAsInteger(10, dim))
      return std::nullopt;
    if (dim < next || dim >= std::ssize(whole) || whole[dim] != size)
      return std::nullopt;
    dims.push_back(dim);
    next = dim + 1;
  }
  return dims;
}

int64_t pc::dimInState(StateOp state, ParameterOp parameter, int64_t dim) {
  std::optional<SmallVector<int64_t>> dims = dimsOfState(state, parameter);
  const auto *found = dims ? llvm::find(*dims, dim) : nullptr;
  return dims && found != dims->end() ? found - dims->begin() : -1;
}

ArrayAttr pc::namesOfState(ParameterOp parameter, ArrayRef<int64_t> dims) {
  SmallVector<Attribute> names;
  int64_t next = 0;
  for (int64_t dim : dims) {
    auto name = cast<StringAttr>(parameter.getDims()[dim]);
    bool isFirst = !llvm::is_contained(parameter.getDims().getValue().slice(next, dim - next), name);
    names.push_back(isFirst ? name : StringAttr::get(name.getContext(), name.getValue() + "#" + Twine(dim)));
    next = dim + 1;
  }
  return ArrayAttr::get(parameter.getContext(), names);
}

SmallVector<int64_t> pc::validShapeOfState(ParameterOp parameter, ArrayRef<int64_t> dims) {
  ArrayRef<int64_t> valid = validShape(parameter);
  return llvm::map_to_vector(dims, [&](int64_t dim) { return valid[dim]; });
}

/// Divides the dims of a part's box and the dims of the part into groups with equal numbers of elements, and calls
/// f(first box dim, end, first dim, end) for each group. Sizes of 1 do not matter. Returns false if f returns false, or
/// if there are no such groups.
static bool forEachGroup(const ParameterPart &part, llvm::function_ref<bool(size_t, size_t, size_t, size_t)> f) {
  ArrayRef<int64_t> size = part.source.getSize();
  const size_t rank = part.size.size();
  for (size_t box = 0, dim = 0; box < size.size();) {
    int64_t ofBox = 1, ofPart = 1;
    const size_t firstBox = box, firstDim = dim;
    do {
      if (box < size.size() && (ofBox <= ofPart || dim == rank))
        ofBox *= size[box++];
      else if (dim == rank)
        return false;
      else
        ofPart *= part.size[dim++];
    } while (ofBox != ofPart);
    if (!f(firstBox, box, firstDim, dim))
      return false;
  }
  return true;
}

/// The box with these sizes in a tensor that is viewed as `whole`. Each dim of the tensor corresponds to one or several
/// dims of the view. If that is impossible, the tensor gets the shape of the view.
static SourceAttr boxIn(SourceAttr source, ArrayRef<int64_t> whole, ArrayRef<int64_t> start, ArrayRef<int64_t> size) {
  SmallVector<int64_t> shape;
  ArrayRef<int64_t> view = source.getView();
  size_t at = 0;
  for (int64_t extent : view.empty() ? ArrayRef<int64_t>() : source.getShape()) {
    int64_t all = 1, own = 1;
    bool isLast = shape.size() + 1 == source.getShape().size();
    for (; at < view.size() && (all < extent || isLast); ++at) {
      all *= view[at];
      own *= whole[at];
    }
    if (all != extent) {
      shape.clear();
      break;
    }
    shape.push_back(own);
  }
  if (shape.empty())
    return SourceAttr::get(source.getContext(), source.getTensor(), whole, start, size, {});
  return SourceAttr::get(source.getContext(), source.getTensor(), shape, start, size, whole);
}

/// The box of a part in the tensor of a state that has the dims `isKept` of the part; null if it has only some of the
/// dims that one dim of the box consists of.
static SourceAttr sourceOfState(const ParameterPart &part, ArrayRef<bool> isKept) {
  SourceAttr source = part.source;
  SmallVector<int64_t> whole(source.boxShape()), start(source.getStart()), size(source.getSize());
  bool fits = forEachGroup(part, [&](size_t firstBox, size_t endBox, size_t firstDim, size_t endDim) {
    std::optional<bool> keeps;
    for (size_t dim = firstDim; dim < endDim; ++dim)
      if (part.size[dim] != 1) {
        if (keeps.value_or(isKept[dim]) != isKept[dim])
          return false;
        keeps = isKept[dim];
      }
    for (size_t i = firstBox; i < endBox && !keeps.value_or(true); ++i) {
      whole[i] = size[i] == whole[i] ? 1 : whole[i];
      size[i] = 1;
    }
    return true;
  });
  return fits ? boxIn(source, whole, start, size) : SourceAttr();
}

/// The box of a part in the tensor of a state that has one element for each block of the part; null if a block is not a
/// box of the tensor. Of the dims that are one dim of the box, only the last one may have blocks.
static SourceAttr sourceOfBlocks(const ParameterPart &part, ArrayRef<int64_t> block) {
  SourceAttr source = part.source;
  SmallVector<int64_t> whole(source.boxShape()), start(source.getStart()), size(source.getSize());
  bool fits = forEachGroup(part, [&](size_t firstBox, size_t endBox, size_t firstDim, size_t endDim) {
    int64_t last = 1;
    for (size_t dim = firstDim; dim < endDim; ++dim)
      if (part.size[dim] != 1) {
        if (last != 1)
          return false;
        last = block[dim];
      }
    for (size_t i = endBox; last > 1 && i-- > firstBox;)
      if (size[i] != 1 || whole[i] != 1) {
        bool divides = size[i] % last == 0 && whole[i] % last == 0 && start[i] % last == 0;
        size[i] /= last, whole[i] /= last, start[i] /= last;
        return divides;
      }
    return true;
  });
  SourceAttr box = fits ? boxIn(source, whole, start, size) : SourceAttr();
  return box && box.getShape().size() == source.getShape().size() ? box : SourceAttr();
}

std::optional<SmallVector<ParameterPart>> pc::partsOfBlocks(ParameterOp parameter, ArrayRef<int64_t> block) {
  if (parameter.getValid())
    return std::nullopt;
  SmallVector<ParameterPart> parts = partsOf(parameter);
  for (ParameterPart &part : parts) {
    part.source = sourceOfBlocks(part, block);
    if (!part.source)
      return std::nullopt;
    for (auto [start, size, of] : llvm::zip_equal(part.start, part.size, block)) {
      if (start % of || size % of)
        return std::nullopt;
      start /= of, size /= of;
    }
  }
  return parts;
}

/// Adds a dim of steps to each part, and to its tensor.
static void addHistory(MutableArrayRef<ParameterPart> parts) {
  int64_t first = 0;
  auto with = [](ArrayRef<int64_t> of, int64_t last) {
    SmallVector<int64_t> all(of);
    all.push_back(last);
    return all;
  };
  for (ParameterPart &part : parts) {
    SourceAttr box = part.source;
    part.source = SourceAttr::get(box.getContext(), box.getTensor(), with(box.getShape(), float8History),
                                  with(box.getStart(), 0), with(box.getSize(), float8History),
                                  box.getView().empty() ? SmallVector<int64_t>() : with(box.getView(), float8History));
    part.start = {first};
    part.size = {float8History};
    first += float8History;
  }
}

bool pc::isHistory(StateOp state) { return state.getName().ends_with(historySuffix); }

std::optional<SmallVector<ParameterPart>> pc::partsOfState(StateOp state, ParameterOp parameter) {
  if (isHistory(state)) {
    std::optional<SmallVector<int64_t>> dims = dimsOfState(state, parameter);
    std::optional<SmallVector<ParameterPart>> parts = dims ? partsOfState(parameter, *dims) : std::nullopt;
    if (parts)
      addHistory(*parts);
    return parts;
  }
  if (std::optional<SmallVector<int64_t>> block = blockOfState(state, parameter))
    return partsOfBlocks(parameter, *block);
  std::optional<SmallVector<int64_t>> dims = dimsOfState(state, parameter);
  return dims ? partsOfState(parameter, *dims) : std::nullopt;
}

std::optional<SmallVector<ParameterPart>> pc::ownPartsOfState(StateOp state, ParameterOp parameter) {
  std::optional<SmallVector<int64_t>> dims = dimsOfState(state, parameter);
  const bool isWhole = dims && dims->size() == parameter.getDims().size() && !isHistory(state);
  return isWhole && !blockOfState(state, parameter) ? std::nullopt : partsOfState(state, parameter);
}

std::optional<SmallVector<ParameterPart>> pc::partsOfState(ParameterOp parameter, ArrayRef<int64_t> dims) {
  SmallVector<ParameterPart> parts = partsOf(parameter);
  size_t rank = parameter.getDims().size();
  if (dims.size() == rank)
    return parts;
  SmallVector<bool> isKept(rank);
  for (int64_t dim : dims)
    isKept[dim] = true;
  for (ParameterPart &part : parts) {
    part.source = sourceOfState(part, isKept);
    if (!part.source)
      return std::nullopt;
    auto keep = [&](ArrayRef<int64_t> of) { return llvm::map_to_vector(dims, [&](int64_t dim) { return of[dim]; }); };
    part.start = keep(part.start);
    part.size = keep(part.size);
  }
  return parts;
}
