//===- Moves.cpp - Places of the results of moves -------------------------------------------===//
// A move combines values of the ranks along its axes, so no other part of their places may depend on these axes.
//===-----------------------------------------------------------------------------===//
#include "Place.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// Removes the axes from the minor end of `dim`. Returns false if they are not there.
static bool dropSplit(Dim &dim, ArrayRef<Index> axes) {
  if (dim.any)
    return true;
  if (ArrayRef<Index>(dim.split).take_back(axes.size()) != axes)
    return false;
  dim.split.resize(dim.split.size() - axes.size());
  return true;
}

static void addSplit(Dim &dim, ArrayRef<Index> indices) {
  if (!dim.any)
    llvm::append_range(dim.split, indices);
}

/// The rank gets another rank's value, so every dim whose blocks depend on the group gets the blocks of that rank, and
/// every sum gets that rank's addend.
bool Placer::permute(const Group &group, Where &y) {
  for (Dim &dim : y.dims)
    if (!dim.any) {
      std::optional<Indices> moved = group.moved(dim.split);
      if (!moved)
        return refuse("permutes a dim whose blocks are not distributed over this group");
      dim.split = *moved;
    }
  // Addends over each of the axes separately are addends over all of them together.
  auto isOf = [&](const PartialSum &part) {
    return llvm::any_of(group.plain(), [&](const Index &own) { return part.in == Indices{own} && !part.inner; });
  };
  if (group.axes.size() > 1 && llvm::count_if(y.parts, isOf) == static_cast<int64_t>(group.axes.size())) {
    llvm::erase_if(y.parts, isOf);
    Group own = group;
    own.shift = 0;
    own.partner.clear();
    y.parts.push_back({setOf(group.axes), false, {own.index()}});
  }
  std::vector<PartialSum> parts;
  for (const PartialSum &part : y.parts) {
    PartialSum moved{0, part.inner, {}};
    for (const Index &index : part.in) {
      std::optional<Index> to = group.moved(index);
      if (!to)
        return refuse("permutes partial sums whose terms are not distributed over this group");
      moved.in.push_back(*to);
      moved.axes |= to->axes();
    }
    llvm::sort(moved.in);
    if (llvm::any_of(parts, [&](const PartialSum &other) { return other.isSameSum(moved); }))
      return refuse("combines terms of two different sums");
    parts.push_back(std::move(moved));
  }
  llvm::sort(parts);
  y.parts = std::move(parts);
  return true;
}

/// Inserts one block per rank into a value that has other blocks. The note of the result lists its blocks; if it has
/// all of them, the dim is whole again.
bool Placer::insert(InsertOp insert, const Group &group, Where &y, const Where *base, Placed &placed) {
  Dim &dim = y.dims[insert.getDim()];
  if (dim.any || !dropSplit(dim, group.indices()))
    return refuse("inserts a block of dim " + Twine(insert.getDim()) + " that is not the block it names");
  Indices have{group.index()};
  if (base) {
    if (base->note.kind != Note::Blocks || base->note.number != static_cast<int64_t>(insert.getDim()) ||
        llvm::is_contained(base->note.blocks, have[0]) || base->parts != y.parts || !base->agrees(y.dims))
      return refuse("inserts a block into a base with different blocks: " + text(*base));
    placed.same.push_back({0, 1});
    llvm::append_range(have, base->note.blocks);
    llvm::sort(have);
  }
  if (static_cast<int64_t>(have.size()) < group.n || !areOneFamily(have))
    y.note = {Note::Blocks, {}, static_cast<int64_t>(insert.getDim()), have};
  return true;
}

/// Sets the axes, their sizes, the partner axes and the shift of a move.
bool Placer::groupOf(MoveOpInterface move, Group &group) {
  if (!axis.number(move.getMoveWith(), group.partner))
    return refuse("uses an axis that is not in the mesh");
  group.shift = move.getMoveShift();
  return groupOf(move.getMoveAxes(), group);
}

bool Placer::groupOf(ArrayRef<StringAttr> axes, Group &group) {
  if (axes.empty() || !axis.number(axes, group.axes))
    return refuse("uses an axis that is not in the mesh");
  for (uint8_t number : group.axes)
    group.sizes.push_back(axis.size(number));
  group.n = axis.size(group.axes);
  return true;
}

/// A reduction over the group removes the addends over exactly its axes.
bool Placer::dropAddends(Where &y, const Group &group, Combine combine) {
  const AxisSet own = setOf(group.axes);
  AxisSet reduced = 0;
  llvm::erase_if(y.parts, [&](const PartialSum &part) {
    bool gone = !(part.axes & ~own) && part.in.size() == 1 && !part.inner;
    reduced |= gone ? part.axes : 0;
    return gone;
  });
  if (y.combine != combine || reduced != own)
    return refuse("needs exactly one term per rank of a " + nameOf(combine) + " over " + text(group.plain()));
  if (y.parts.empty())
    y.combine = Combine::None;
  return true;
}

/// The stack of the addends is split over the axes of the sum: each rank has its own addend. A rank that has all
/// addends of its elements has their sum.
std::optional<Placed> Placer::codes(Operation *op, const Where &x) {
  Placed placed;
  Where y = x;
  if (auto encode = dyn_cast<EncodeAddendOp>(op)) {
    Group group;
    if ((x.note.kind != Note::None || x.root) && !refuse("encodes a value with missing parts"))
      return std::nullopt;
    if (!groupOf(axisList(encode.getAxes()), group) || !dropAddends(y, group, Combine::Sum))
      return std::nullopt;
    y.dims.insert(y.dims.begin(), Dim{false, group.plain()});
    y.dims.emplace_back();
  } else {
    if (x.dims.size() != localShape(op->getResult(0)).size() + 2 || !x.dims.front().split.empty() ||
        !x.dims.back().split.empty()) {
      refuse("needs the addends of all ranks, but its operand has placement " + text(x));
      return std::nullopt;
    }
    y.dims.erase(y.dims.begin());
    y.dims.pop_back();
  }
  placed.results.push_back(std::move(y));
  return placed;
}

/// A move among the ranks of `group`. It changes `y`, at first the place of the operand, to the place of the result.
/// Each method returns false if it refuses.
struct Placer::GroupMove {
  Placer &placer;
  MoveOpInterface move;
  ArrayRef<const Where *> operands;
  const Group &group;
  AxisSet own; ///< the axes of the group
  Where &y;

  bool refuse(const Twine &why) { return placer.refuse(why); }
  std::string groupText() const { return placer.text(group.plain()); }

  /// A dim can be gathered over the group only if the group is its innermost split, because then the ranks hold
  /// adjacent blocks.
  bool dropBlocks(int64_t d) {
    return dropSplit(y.dims[d], group.plain()) ||
           refuse("needs dim " + Twine(d) + " split over " + groupText() + " as the innermost axis");
  }

  /// Apart from the blocks or addends that the move removes, the places of all ranks of the group must be equal.
  bool holdsNothingElse() {
    return !(y.axes() & own) || refuse("combines values of the ranks along " + groupText() +
                                       ", although more than its dim differs between them");
  }

  bool reduce() {
    Combine combine = move.getReduction() == PartialKind::Max ? Combine::Max : Combine::Sum;
    return placer.dropAddends(y, group, combine) && holdsNothingElse();
  }

  /// Mask and pad leave the value on one rank and zeros on the others. Which rank has the value is not recorded
  /// (unknown index).
  bool becomeAddend() {
    if (!holdsNothingElse())
      return false;
    if (y.combine != Combine::None && y.combine != Combine::Sum)
      return refuse("creates a term of a sum from an operand of a " + nameOf(y.combine));
    y.combine = Combine::Sum;
    for (uint8_t number : group.axes) {
      AxisSet single = AxisSet(1) << number;
      y.parts.push_back({single, false, {Index::unknown(single)}});
    }
    llvm::sort(y.parts);
    return true;
  }

  bool split(int64_t d, ArrayRef<Index> indices) {
    addSplit(y.dims[d], indices);
    return true;
  }

  /// A move of rows also needs the mask of all ranks of the group.
  bool allToAll(int64_t from, int64_t to) {
    if (!dropBlocks(from) || !holdsNothingElse())
      return false;
    if (operands.size() > 1 && operands[1]->axes() & own)
      return refuse("needs the mask of all ranks along " + groupText());
    return split(to, group.plain());
  }

  /// If a move adds up equal copies, their number is multiplied by the number of ranks.
  void spreadCopies(Placed &placed) {
    if (!y.copies || move.getReduction() == PartialKind::None || y.axes() & own)
      return;
    y.combine = move.getReduction() == PartialKind::Max ? Combine::Max : Combine::Sum;
    for (const Index &index : group.plain())
      y.parts.push_back({index.axes(), false, {index}});
    llvm::sort(y.parts);
    placed.scale = y.combine == Combine::Sum ? static_cast<double>(group.n) : 1;
  }

  /// Each kind of move removes or adds blocks or addends of the group, and checks that the operand has what it needs.
  bool apply(Placed &placed) {
    spreadCopies(placed);
    const Where &x = *operands[0];
    if (x.note.kind == Note::Blocks)
      return refuse("moves a value with missing blocks");
    MoveKind kind = move.getMoveKind();
    if (x.root & own && kind != MoveKind::Broadcast && kind != MoveKind::Scatter)
      return refuse("reads a value on all ranks of " + groupText() + ", but only the root rank has it");
    int64_t dim = move.getMoveDim();
    switch (kind) {
    case MoveKind::AllReduce:
      return reduce();
    case MoveKind::ReduceScatter:
      return reduce() && split(dim, group.plain());
    case MoveKind::Reduce:
      y.root |= own;
      return reduce();
    case MoveKind::AllGather:
      return dropBlocks(dim) && holdsNothingElse();
    case MoveKind::AllToAll:
      return allToAll(dim, move.getOtherDim());
    case MoveKind::Gather:
      y.root |= own;
      return dropBlocks(dim) && holdsNothingElse();
    case MoveKind::Slice:
      return split(dim, group.indices());
    case MoveKind::Mask:
      return becomeAddend();
    case MoveKind::Pad:
      return dropBlocks(dim) && becomeAddend();
    case MoveKind::Broadcast:
      y.root &= ~own;
      return holdsNothingElse();
    case MoveKind::Scatter:
      y.root &= ~own;
      return holdsNothingElse() && split(dim, group.plain());
    case MoveKind::Permute:
      return placer.permute(group, y);
    case MoveKind::Insert:
      return placer.insert(cast<InsertOp>(move), group, y, operands.size() > 1 ? operands[1] : nullptr, placed);
    case MoveKind::Carry:
      break; // a carry has no group
    }
    llvm_unreachable("a move of no kind");
  }
};

/// Refuses a dim that the operand lacks. A move in a group of one rank changes nothing.
std::optional<Where> Placer::move(MoveOpInterface move, ArrayRef<const Where *> operands, Placed &placed) {
  Where y = *operands[0];
  y.note = {};
  if (llvm::any_of(operands, [](const Where *value) { return value->note.kind == Note::Round; })) {
    refuse("moves values of only one round of routed tokens, not of all rounds");
    return std::nullopt;
  }
  if (isa<CarryOp>(*move)) // the same value in another space
    return y;
  Group group;
  if (!groupOf(move, group))
    return std::nullopt;
  if (group.axes.empty()) // a group of one rank
    return y;
  auto rank = static_cast<int64_t>(y.dims.size());
  if (move.getMoveDim() >= rank || move.getOtherDim() >= rank) {
    refuse("uses a dim that its operand does not have");
    return std::nullopt;
  }
  GroupMove groupMove{*this, move, operands, group, setOf(group.axes), y};
  if (groupMove.apply(placed))
    return y;
  wrong += "; the placement of its operand is " + text(*operands[0]);
  return std::nullopt;
}
