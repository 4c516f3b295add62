//===- Views.cpp - Verifiers of views, and of rows by id ----------------------------------===//
// The numbers (C1), (C2) in errors are those of the constraints in PCViews.td.
//===-----------------------------------------------------------------------------===//
#include "ReshapeSpec.h"
#include "pc/IR/PC.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace pc;

/// Numbers are limited to 32 bits, so that products of them do not overflow.
LogicalResult ColumnsOp::verify() {
  auto from = static_cast<int64_t>(getFrom()), step = static_cast<int64_t>(getStep()),
       every = static_cast<int64_t>(getEvery());
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (step < 1 || every < 1 || step > most || every > most || from < -most || from > most)
    return emitOpError() << "has from " << from << ", step " << step << ", every " << every
                         << "; steps are at least 1, and all of them have 32 bits (C1)";
  return success();
}

LogicalResult StackOp::verify() {
  int64_t entries = getResult().getType().getRank() ? getResult().getType().getDimSize(0) : 0;
  if (getInputs().empty() || entries < static_cast<int64_t>(getInputs().size()))
    return emitOpError() << "has " << getInputs().size() << " operands for " << entries << " entries (C1)";
  return success();
}

LogicalResult UnstackOp::verify() {
  int64_t entries = getStack().getType().getRank() ? getStack().getType().getDimSize(0) : 0;
  if (auto index = static_cast<int64_t>(getIndex()); index < 0 || index >= entries)
    return emitOpError() << "reads entry " << index << " of " << entries << " (C1)";
  return success();
}

/// Parentheses around several names merge them into one dim.
std::optional<ReshapeDims> pc::reshapeDims(StringRef side) {
  ReshapeDims dims;
  bool isOpen = false;
  for (side = side.ltrim(); !side.empty(); side = side.ltrim()) {
    if (side.front() == '(' || side.front() == ')') {
      bool opens = side.front() == '(';
      if (opens == isOpen || (!opens && dims.back().empty()))
        return std::nullopt;
      if (opens)
        dims.emplace_back();
      isOpen = opens;
      side = side.drop_front();
      continue;
    }
    StringRef name = side.take_while([](char c) { return llvm::isAlnum(c) || c == '_'; });
    if (name.empty())
      return std::nullopt;
    if (!isOpen)
      dims.emplace_back();
    dims.back().push_back(name);
    side = side.drop_front(name.size());
  }
  if (isOpen)
    return std::nullopt;
  return dims;
}

/// Both sides must have the same names in the same order, and the sizes of dims that share names must have equal
/// products.
LogicalResult ReshapeOp::verify() {
  auto [left, right] = getSpec().split("->");
  std::optional<ReshapeDims> from = reshapeDims(left), to = reshapeDims(right);
  if (!from || !to)
    return success(); // the verifier of factors reports a spec that does not match
  ArrayRef<int64_t> shapes[] = {getX().getType().getShape(), getResult().getType().getShape()};
  ReshapeDims sides[] = {*from, *to};
  if (sides[0].size() != shapes[0].size() || sides[1].size() != shapes[1].size())
    return success(); // the verifier of factors reports wrong ranks
  SmallVector<StringRef> names[2];
  for (int side : {0, 1})
    for (const auto &dim : sides[side])
      llvm::append_range(names[side], dim);
  llvm::StringSet<> once;
  for (StringRef name : names[0])
    if (!once.insert(name).second)
      return emitOpError() << "has the name '" << name << "' twice on one side (C1)";
  if (names[0] != names[1])
    return emitOpError() << "has different dim names, or a different order of them, on its two sides (C1)";
  // Sizes are compared as soon as both sides have read the same names. `dims` has the next dim of each side, and `read`
  // the number of names that each side has read. The side that has read fewer names reads the next dim.
  size_t dims[] = {0, 0}, read[] = {0, 0};
  while (dims[0] < sides[0].size()) {
    uint64_t elements[] = {1, 1};
    size_t first = read[0];
    do {
      int side = read[0] <= read[1] ? 0 : 1;
      elements[side] *= static_cast<uint64_t>(shapes[side][dims[side]]);
      read[side] += sides[side][dims[side]++].size();
    } while (read[0] != read[1]);
    if (elements[0] != elements[1])
      return emitOpError() << "has " << elements[0] << " elements along '"
                           << llvm::join(ArrayRef(names[0]).slice(first, read[0] - first), " ") << "', but "
                           << elements[1] << " in its result (C2)";
  }
  return success();
}

/// Checks (C1) of embedding and its gradient.
template <typename Op> static LogicalResult verifyPadding(Op op) {
  std::optional<int64_t> padding = op.getPadding();
  if (op.getBatch() >= op.getTableShape().size()) // the verifier of factors reports such a table
    return success();
  if (padding && (*padding < 0 || (!op.getOffset() && *padding >= op.getRows())))
    return op.emitOpError() << "has padding id " << *padding << ", which is not a row of "
                            << op.getIndexedDim().value.getType() << " (C1)";
  return success();
}
LogicalResult EmbeddingOp::verify() { return verifyPadding(*this); }
LogicalResult EmbeddingGradOp::verify() { return verifyPadding(*this); }
