//===- Boxes.cpp - Checks that parameters cover the tensors of a checkpoint ------------------===//
// Input: a module whose parameters name boxes of checkpoint tensors. The check fails unless the boxes of each tensor
// agree on its shape, do not overlap, and cover all of its elements. Then a checkpoint can be written from the
// parameters alone.
//===-----------------------------------------------------------------------------===//
#include "pc/IR/Boxes.h"
#include "pc/IR/Parts.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace pc;

namespace {

/// The part of a tensor that a leaf, or a part of a leaf, holds.
struct Box {
  Operation *leaf;
  StringRef name;
  SourceAttr source;

  InFlightDiagnostic error() const { return emitError(leaf->getLoc()); }
  int64_t elements() const { return ShapedType::getNumElements(source.getSize()); }
  /// The first element of the tensor that is in the box, and the element after the last one.
  std::pair<int64_t, int64_t> hull() const {
    int64_t first = 0, last = 0;
    for (auto [size, start, count] : llvm::zip(source.boxShape(), source.getStart(), source.getSize())) {
      first = first * size + start;
      last = last * size + start + count - 1;
    }
    return {first, last + 1};
  }
};

/// Calls f for the elements of the tensor that the box has.
void forEachElement(const Box &box, llvm::function_ref<void(int64_t)> f) {
  ArrayRef<int64_t> shape = box.source.boxShape(), start = box.source.getStart(), size = box.source.getSize();
  SmallVector<int64_t> index(size.size());
  for (int64_t i = 0, e = box.elements(); i < e; ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < size.size(); ++d)
      at = at * shape[d] + start[d] + index[d];
    f(at);
    for (size_t d = size.size(); d-- > 0 && ++index[d] == size[d];)
      index[d] = 0;
  }
}

/// Returns true if two parameters have an element of the tensor in common.
bool overlap(const Box &a, const Box &b) {
  auto meet = [](int64_t startA, int64_t sizeA, int64_t startB, int64_t sizeB) {
    return startA < startB + sizeB && startB < startA + sizeA;
  };
  auto [firstA, endA] = a.hull();
  auto [firstB, endB] = b.hull();
  if (!meet(firstA, endA - firstA, firstB, endB - firstB))
    return false;
  // Boxes of one view overlap if they overlap in every dim. Boxes of different views are compared element by element.
  if (a.source.boxShape() == b.source.boxShape())
    return llvm::all_of(llvm::zip(a.source.getStart(), a.source.getSize(), b.source.getStart(), b.source.getSize()),
                        [&](auto dim) { return std::apply(meet, dim); });
  llvm::DenseSet<int64_t> elements;
  bool found = false;
  forEachElement(a, [&](int64_t at) { elements.insert(at); });
  forEachElement(b, [&](int64_t at) { found |= elements.contains(at); });
  return found;
}

} // namespace

/// Checks all boxes of one tensor. The states' tensors may have elements that no state has.
static LogicalResult checkTensor(StringRef tensor, ArrayRef<Box> boxes, bool ofStates) {
  ArrayRef<int64_t> shape = boxes.front().source.getShape();
  // Since no two boxes overlap, counting their elements is enough to know that they cover the tensor.
  int64_t covered = 0, all = ShapedType::getNumElements(shape);
  for (auto [i, box] : llvm::enumerate(boxes)) {
    covered += box.elements();
    if (box.source.getShape() != shape)
      return box.error() << "parameters '" << boxes.front().name << "' and '" << box.name
                         << "' are parts of the Hugging Face tensor '" << tensor
                         << "', but state different shapes for it; a checkpoint has one tensor of this name";
    for (const Box &other : boxes.take_front(i))
      if (overlap(box, other))
        return box.error() << "'" << box.name << "' and '" << other.name << "' are overlapping parts of tensor '"
                           << tensor
                           << "', but a checkpoint stores each element once; use one parameter for these elements, "
                              "with two readers";
  }
  if (covered == all || ofStates)
    return success();
  return boxes.front().error() << "no parameter covers " << all - covered << " of the " << all
                               << " elements of tensor '" << tensor
                               << "', so a checkpoint would lose their values; add a parameter that covers them and is "
                                  "read, or make the tensor smaller";
}

/// Collects the boxes of states that have another shape than their parameter, by tensor.
static void findBoxesOfStates(ModuleOp module, llvm::MapVector<StringAttr, SmallVector<Box, 1>> &boxes) {
  llvm::StringMap<ParameterOp> parameters;
  module.walk([&](ParameterOp parameter) { parameters[parameter.getName()] = parameter; });
  module.walk([&](StateOp state) {
    ParameterOp parameter = parameters.lookup(state.getParameter());
    if (!parameter)
      return;
    for (const ParameterPart &part : ownPartsOfState(state, parameter).value_or(SmallVector<ParameterPart>()))
      boxes[StringAttr::get(module.getContext(), state.getName() + "." + part.source.getTensor())].push_back(
          {state, part.name, part.source});
  });
}

/// Collects the boxes of all parameters and their parts, by tensor.
LogicalResult pc::checkBoxes(ModuleOp module) {
  llvm::MapVector<StringAttr, SmallVector<Box, 1>> boxes;
  module.walk([&](ParameterOp parameter) {
    for (const ParameterPart &part : partsOf(parameter))
      boxes[StringAttr::get(module.getContext(), part.source.getTensor())].push_back(
          {parameter, part.name, part.source});
  });
  auto areGood = [](const auto &boxes, bool ofStates) {
    return llvm::all_of(boxes, [&](const auto &tensor) {
      return succeeded(checkTensor(tensor.first.getValue(), tensor.second, ofStates));
    });
  };
  llvm::MapVector<StringAttr, SmallVector<Box, 1>> ofStates;
  findBoxesOfStates(module, ofStates);
  return success(areGood(boxes, false) && areGood(ofStates, true));
}
