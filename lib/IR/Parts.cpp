//===- Parts.cpp - The parameters in a packed parameter -------------------------===//
// A parameter of experts packs one tensor per expert along a dim. Readers that care about checkpoints, keys of random
// numbers or names see its parts; a parameter that is not packed has one part, itself.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Parts.h"

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

std::optional<SmallVector<int64_t>> pc::dimsOfState(StateOp state, ParameterOp parameter) {
  auto shapeOf = [](auto leaf) {
    return leaf.getGlobal() ? *leaf.getGlobal() : cast<RankedTensorType>(leaf.getValue().getType()).getShape();
  };
  ArrayRef<int64_t> shape = shapeOf(state), whole = shapeOf(parameter);
  if (shape == whole)
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

/// The box of a part in the tensor of a state that has the dims `isKept` of the part; null if it has only some of the
/// dims that one dim of the box consists of.
static SourceAttr sourceOfState(const ParameterPart &part, ArrayRef<bool> isKept) {
  SourceAttr source = part.source;
  SmallVector<int64_t> whole(source.boxShape()), start(source.getStart()), size(source.getSize());
  // Some dims of the box, one after the other, have the elements of some dims of the part. Sizes of 1 do not matter.
  for (size_t box = 0, dim = 0; box < size.size();) {
    int64_t ofBox = 1, ofPart = 1;
    size_t first = box;
    std::optional<bool> keeps;
    do {
      if (box < size.size() && (ofBox <= ofPart || dim == isKept.size())) {
        ofBox *= size[box++];
        continue;
      }
      if (dim == isKept.size())
        return {};
      if (part.size[dim] != 1 && keeps.value_or(isKept[dim]) != isKept[dim])
        return {};
      if (part.size[dim] != 1)
        keeps = isKept[dim];
      ofPart *= part.size[dim++];
    } while (ofBox != ofPart);
    if (keeps.value_or(true))
      continue;
    for (size_t i = first; i < box; ++i) {
      whole[i] = size[i] == whole[i] ? 1 : whole[i];
      size[i] = 1;
    }
  }
  // Each dim of the tensor is one dim of the view, or several.
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
