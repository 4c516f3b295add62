//===- Compute.cpp - Places of the results of ops that compute ------------------------------===//
// Input: the places of an op's operands (Where.h) and its rule (Rules.cpp). Result: the places of its results, or the
// reason why the op is wrong: dims with different places, incomplete sums, or offsets of another block.
//===-----------------------------------------------------------------------------===//
#include "Place.h"

using namespace mlir;
using namespace pc;
using namespace pc::proof;

/// Axes are numbered in the order of the mesh. A program without a mesh has none.
void Axis::setMesh(MeshAttr mesh) {
  list.clear();
  sizes.clear();
  if (mesh)
    for (auto [name, size] : llvm::zip_equal(mesh.getNames(), mesh.getSizes())) {
      list.push_back(name.str());
      sizes.push_back(size);
    }
}

int64_t Axis::size(ArrayRef<uint8_t> axes) const {
  int64_t n = 1;
  for (uint8_t axis : axes)
    n *= sizes[axis];
  return n;
}

/// Fails if an axis is not in the mesh, or if there are more axes than numbers.
bool Axis::number(ArrayRef<StringAttr> names, Axes &axes) const {
  for (StringAttr name : names) {
    auto it = llvm::find(list, name.getValue());
    if (it == list.end() || it - list.begin() >= roundAxis)
      return false;
    if (sizes[it - list.begin()] > 1)
      axes.push_back(static_cast<uint8_t>(it - list.begin()));
  }
  return true;
}

AxisSet Axis::setOf(ArrayRef<StringAttr> names) const {
  Axes axes;
  return number(names, axes) ? proof::setOf(axes) : 0;
}

/// In placed programs types have global shapes, so split dims are divided by the sizes of their axes.
SmallVector<int64_t> Placer::localShape(Value value) const {
  SmallVector<int64_t> shape(cast<RankedTensorType>(value.getType()).getShape());
  if (PlaceAttr place = placement(value))
    for (auto [d, size] : llvm::enumerate(shape)) {
      Axes axes;
      if (d < place.getDims().size() && axis.number(place.axes(d), axes))
        size /= std::max<int64_t>(1, axis.size(axes));
    }
  return shape;
}

/// Each axis of a dim becomes one index: the rank's coordinate on it.
std::optional<Where> pc::proof::read(const Axis &axis, PlaceAttr layout, size_t rank) {
  Where where(rank);
  Axes root;
  if (!layout)
    return where;
  if (layout.getDims().size() != rank || !axis.number(layout.getRoot(), root))
    return std::nullopt;
  where.root = setOf(root);
  for (auto [d, dim] : llvm::enumerate(where.dims)) {
    Group group;
    if (!axis.number(layout.axes(static_cast<int64_t>(d)), group.axes))
      return std::nullopt;
    for (uint8_t number : group.axes)
      group.sizes.push_back(axis.size(number));
    dim.split = group.plain();
  }
  return where;
}

/// The blocks must have the size that the leaf's global shape and layout give.
std::optional<Where> Placer::leaf(Value value, PlaceAttr layout, ArrayRef<int64_t> global) {
  SmallVector<int64_t> shape = localShape(value);
  std::optional<Where> where = read(axis, layout, shape.size());
  if (!where || (layout && layout.isPartial()) || global.size() != shape.size()) {
    refuse("has a layout that does not match its shape");
    return std::nullopt;
  }
  for (auto [dim, whole, local] : llvm::zip_equal(where->dims, global, shape)) {
    int64_t blocks = 1;
    for (const Index &index : dim.split)
      blocks *= index.n;
    if (local * blocks == whole)
      continue;
    refuse("has a dim of global size " + Twine(whole) + " in " + Twine(blocks) + " blocks of " + Twine(local));
    return std::nullopt;
  }
  return where;
}

/// The first dim of a stack is the dim of microbatches, which must be whole.
std::optional<Where> Placer::element(const Where &stack) {
  if (stack.dims.empty() || !stack.dims[0].split.empty() || stack.combine != Combine::None) {
    refuse("needs a stack with all microbatches on every rank, but its stack has placement " + text(stack));
    return std::nullopt;
  }
  Where where = stack;
  where.dims.erase(where.dims.begin());
  return where;
}

/// An axis of stages does not occur in types, so sums over it are not compared.
bool Placer::agreesWithType(Value value, const Where &where, AxisSet stageAxis) {
  PlaceAttr place = placement(value);
  if (!place)
    return true;
  std::optional<Where> said = read(axis, place, where.dims.size());
  AxisSet partial = 0;
  for (const PartialSum &part : where.parts)
    partial |= part.axes;
  Combine combine = place.getKind() == PartialKind::Max   ? Combine::Max
                    : place.getKind() == PartialKind::Sum ? Combine::Sum
                                                          : Combine::None;
  AxisSet saidPartial = axis.setOf(place.getPartial()) & ~stageAxis;
  bool agrees = said && where.agrees(said->dims) && (where.root == said->root || !where.root) &&
                partial == saidPartial && (!partial || where.combine == combine);
  if (agrees)
    return true;
  std::string type;
  llvm::raw_string_ostream(type) << place;
  return refuse("has placement " + text(where) + ", but its type says " + type);
}

/// Handles moves and ops without a factor rule. compute() handles all other ops by their factor rules.
std::optional<Placed> Placer::place(Operation *op, ArrayRef<const Where *> operands) {
  if (auto moved = dyn_cast<MoveOpInterface>(op)) {
    Placed placed;
    std::optional<Where> y = move(moved, operands, placed);
    if (!y)
      return std::nullopt;
    placed.results.push_back(std::move(*y));
    placed.isSame = true;
    return placed;
  }
  auto single = [&](Where where) {
    Placed placed;
    placed.results.push_back(std::move(where));
    return placed;
  };
  auto rank = [&] { return localShape(op->getResult(0)).size(); };
  if (isa<ConstantOp, SeedOp>(op))
    return single(Where(rank()));
  // Numbers that differ between ranks are recorded as notes, so that the ops that read them can be checked.
  if (auto offset = dyn_cast<BlockOffsetOp>(op)) {
    Where where(rank());
    where.note = {Note::Offset, {}, static_cast<int64_t>(offset.getBlock()), {}};
    if (axis.number(axisList(offset.getAxes()), where.note.axes))
      return single(where);
    refuse("uses an axis that is not in the mesh");
    return std::nullopt;
  }
  if (auto counts = dyn_cast<KeyCountsOp>(op)) {
    const Note &of = operands[0]->note;
    if (of.kind == Note::Offset && of.number == 1 && axis.size(of.axes) == static_cast<int64_t>(counts.getRanks())) {
      Where where(rank());
      where.note = {Note::Counts, of.axes, static_cast<int64_t>(counts.getShift()), {}};
      return single(where);
    }
    refuse("counts keys for an offset that is not the coordinate of a rank in its group", FaultKind::Scale);
    return std::nullopt;
  }
  if (auto round = dyn_cast<RoundOfRowsOp>(op))
    return roundOf(round, *operands[0]);
  if (isa<EncodeAddendOp, DecodeSumOp>(op))
    return codes(op, *operands[0]);
  if (auto sum = dyn_cast<AddOp>(op); sum && operands[0]->note != operands[1]->note)
    return addRounds(sum, operands);
  return compute(op, operands);
}

/// Checks the dim that the op reads by its global index: the op's offset must be the start of this rank's block.
bool Placer::checkIndex(Operation *op, const Rule &rule, ArrayRef<const Where *> operands, ArrayRef<int64_t> sizes,
                        MutableArrayRef<Dim> dims) {
  Dim &dim = dims[rule.indexed];
  bool isMade = isa<IotaOp, EmbeddingGradOp>(op); // no operand of these ops has this dim
  if (placement(op->getResult(0))) {              // in placed programs, types contain the offset
    if (isMade) {
      std::optional<Where> said = read(axis, placement(op->getResult(0)), localShape(op->getResult(0)).size());
      if (!said)
        return refuse("has a type that uses an axis that is not in the mesh");
      dim = said->dims[llvm::find(rule.results[0], rule.indexed) - rule.results[0].begin()];
    }
  } else {
    Group offset;
    if (operands.size() > rule.operands.size()) {
      const Note &note = operands.back()->note;
      if (note.kind != Note::Offset || note.number != sizes[rule.indexed])
        return refuse("needs as its offset the first index of a block of " + Twine(sizes[rule.indexed]),
                      FaultKind::Scale);
      offset.axes = note.axes;
      for (uint8_t number : offset.axes)
        offset.sizes.push_back(axis.size(number));
    }
    if (isMade)
      dim = {false, offset.plain()};
    else if (!dim.any && dim.split != offset.plain())
      return refuse("reads a dim split over " + text(dim.split) + " with the offset of a block over " +
                        text(offset.plain()),
                    FaultKind::Scale);
  }
  AxisSet others = 0;
  for (size_t f = 0; f < dims.size(); ++f)
    if (static_cast<int>(f) != rule.indexed)
      others |= axesOf(dims[f].split);
  return !isMade || !(axesOf(dim.split) & others) ||
         refuse("creates a dim that is split over the same axis as its operands");
}

/// Dropped elements depend on global indices, so the op must have the right size of the whole value and starts of
/// blocks.
bool Placer::checkDrawn(DrawnOpInterface op, const Rule &rule, ArrayRef<const Where *> offsets, ArrayRef<int64_t> sizes,
                        MutableArrayRef<Dim> dims) {
  DropAttr drop = op.getDropAttr();
  Rule::Letters letters = rule.operands[0];
  if (isa<AttentionOp, AttentionGradOp>(op)) {
    letters.clear();
    for (StringRef name : {"b", "k", "g", "s", "t"})
      letters.push_back(rule.find(name));
  }
  if (placement(op->getResult(0))) { // in placed programs, types contain sizes and starts
    std::optional<Where> said = read(axis, placement(op->getResult(0)), localShape(op->getResult(0)).size());
    if (!said || !drop.getGlobal().empty())
      return refuse("is in a placed program but has sizes for local programs, or uses an axis that is not in the mesh");
    for (auto [f, dim] : llvm::zip(rule.results[0], said->dims))
      if (dims[f].any)
        dims[f] = dim;
    return true;
  }
  for (auto [i, f] : llvm::enumerate(letters)) {
    const auto *at = llvm::find(drop.getSplit(), static_cast<int64_t>(i));
    Group block;
    int told = -1; // the operand that is the start of the block
    if (at != drop.getSplit().end()) {
      auto number = at - drop.getSplit().begin();
      told = static_cast<int>(op->getNumOperands() - offsets.size() + number);
      const Note &note = offsets[number]->note;
      if (note.kind != Note::Offset || note.number != sizes[f])
        return refuse("needs as its offset the first index of a block of " + Twine(sizes[f]) + " along dim " +
                          rule.names[f],
                      FaultKind::Scale, told);
      block.axes = note.axes;
      for (uint8_t number : block.axes)
        block.sizes.push_back(axis.size(number));
      block.n = axis.size(block.axes);
      block.shift = i + 1 == letters.size() ? drop.getShift() : 0;
    } else if (i + 1 == letters.size() && drop.getShift()) {
      return refuse("shifts a dim that is not split");
    }
    Indices split = block.shift ? block.indices() : block.plain();
    if (dims[f].any)
      dims[f] = {false, split};
    if (dims[f].split != split)
      return refuse("applies dropout along dim " + rule.names[f] + ", which is split over " + text(dims[f].split) +
                        ", as if it were split over " + text(split),
                    FaultKind::Scale, told);
    if (!drop.getGlobal().empty() && drop.getGlobal()[i] != sizes[f] * block.n)
      return refuse("has " + Twine(block.n) + " blocks of " + Twine(sizes[f]) + " of dim " + rule.names[f] +
                    ", but treats their total size as " + Twine(drop.getGlobal()[i]));
  }
  return true;
}

/// Queries do not move. The op has all keys or, in a step of a ring, the keys of the block `shift` before the queries'
/// block.
bool Placer::checkAttention(Operation *op, Rule &rule, const Where *sees, ArrayRef<int64_t> sizes, ArrayRef<Dim> dims) {
  const Indices &s = dims[rule.indexed].split, &t = dims[rule.find("t")].split;
  bool causal = op->hasAttr("causal");
  auto isNote = [&](Note::Kind kind, int64_t number) {
    Group group;
    if (!sees || sees->note.kind != kind || sees->note.number != number)
      return false;
    group.axes = sees->note.axes;
    for (uint8_t axisNumber : group.axes)
      group.sizes.push_back(axis.size(axisNumber));
    return group.plain() == s;
  };
  if (!t.empty()) {
    Group ring;
    for (const Index &index : s) {
      if (index.terms.size() != 1 || index.terms[0].axes.size() != 1 || !index.isPlain(index.terms[0].axes))
        return refuse("has queries split over " + text(s));
      ring.axes.push_back(index.terms[0].axes[0]);
      ring.sizes.push_back(index.n);
    }
    ring.n = axis.size(ring.axes);
    // Tries all shifts: there are as many as ranks in the ring.
    while (ring.shift < ring.n && ring.indices() != t)
      ++ring.shift;
    if (ring.shift == ring.n)
      return refuse("has keys split over " + text(t) + ", but queries over " + text(s));
    if (causal && !isNote(Note::Counts, ring.shift))
      return refuse("is not given the keys of its current block, the block at ring shift " + Twine(ring.shift),
                    FaultKind::Scale);
    rule.whole[rule.find("t")] = false;
    return true;
  }
  if (!s.empty() && causal && !placement(op->getResult(0)))
    return isNote(Note::Offset, sizes[rule.indexed]) ||
           refuse("has queries split over " + text(s) + ", but is not given their positions", FaultKind::Scale);
  bool isTold = sees && (sees->note.kind == Note::None || !sees->note.axes.empty());
  return !s.empty() || !isTold ||
         refuse("is given positions of queries, although the queries are not split", FaultKind::Scale);
}

/// Returns true if no two of these operands are sums over one axis.
static bool areOfDifferentAxes(ArrayRef<const Where *> operands, ArrayRef<unsigned> partial) {
  AxisSet taken = 0;
  for (unsigned i : partial) {
    AxisSet own = 0;
    for (const PartialSum &part : operands[i]->parts)
      own |= part.axes;
    if (own & taken)
      return false;
    taken |= own;
  }
  return true;
}

/// The incomplete sums of the result of `op`, if the operands `partial` are incomplete sums. If these cannot be
/// combined, refuses the op and returns std::nullopt.
std::optional<std::vector<PartialSum>> Placer::join(Operation *op, ArrayRef<const Where *> operands,
                                                    ArrayRef<unsigned> partial, Placed &placed) {
  SmallVector<std::vector<PartialSum>, 2> parts;
  for (unsigned i : partial)
    parts.push_back(operands[i]->parts);
  if (isa<EinsumOp>(op)) { // the product of sums over different axes is the sum of all products of addends
    std::vector<PartialSum> all;
    for (const std::vector<PartialSum> &some : parts)
      llvm::append_range(all, some);
    llvm::sort(all);
    return all;
  }
  auto indexOf = [](std::vector<PartialSum> &list, const PartialSum &like) {
    return llvm::find_if(list, [&](const PartialSum &part) { return part.isSameSum(like); });
  };
  // In a stepwise reduction over several axes, this rank's own block is partial over each axis separately, and the
  // blocks of the steps are partial over all axes together. The loop rewrites the first kind as the second.
  for (size_t i = 0; parts.size() == 2 && i < 2; ++i)
    for (const PartialSum &together : std::vector<PartialSum>(parts[1 - i])) {
      if (indexOf(parts[i], together) != parts[i].end() || together.in.front().terms.empty())
        continue;
      Group own;
      own.axes = together.in.front().terms.front().axes;
      if (own.axes.size() < 2 || setOf(own.axes) != together.axes)
        continue;
      for (uint8_t number : own.axes)
        own.sizes.push_back(axis.size(number));
      own.n = axis.size(own.axes);
      std::vector<PartialSum> rest = parts[i];
      bool isWhole = llvm::all_of(own.plain(), [&](const Index &index) {
        auto find = [&](bool inner) {
          return llvm::find_if(
              rest, [&](const PartialSum &part) { return part.in == Indices{index} && part.inner == inner; });
        };
        auto one = find(together.inner);
        if (one == rest.end())
          one = find(false);
        return one != rest.end() && (rest.erase(one), true);
      });
      if (!isWhole)
        continue;
      rest.push_back({together.axes, together.inner, {own.index()}});
      llvm::sort(rest);
      parts[i] = std::move(rest);
    }
  std::vector<PartialSum> out = parts[0];
  for (std::vector<PartialSum> &more : llvm::drop_begin(parts)) {
    bool same = out.size() == more.size() &&
                llvm::all_of(out, [&](const PartialSum &part) { return indexOf(more, part) != more.end(); });
    if (!same) {
      refuse("adds sums over different axes: " + text(*operands[partial[0]]) + " and " + text(*operands[partial[1]]));
      return std::nullopt;
    }
    for (PartialSum &part : out) {
      const PartialSum &other = *indexOf(more, part);
      if (part.in == other.in)
        continue;
      Indices both;
      std::set_union(part.in.begin(), part.in.end(), other.in.begin(), other.in.end(), std::back_inserter(both));
      if (llvm::any_of(both, [](const Index &index) { return !index.n; })) {
        part.in = {Index::unknown(part.axes)};
        continue;
      }
      if (both.size() < part.in.size() + other.in.size() || !isa<AddOp>(op)) {
        refuse("adds the same terms twice: " + text(part.in) + " and " + text(other.in));
        return std::nullopt;
      }
      part.in = std::move(both);
      placed.same = {{partial[0], partial[1]}};
      placed.isSame = true;
    }
  }
  return out;
}

/// Both parts must be attention to different keys of the same set, each with its own log-sum-exp. The result is
/// attention to the keys of both.
std::optional<Placed> Placer::merge(ArrayRef<const Where *> operands) {
  Placed placed;
  placed.same = {{0, 2}, {1, 3}};
  placed.isSame = true;
  bool fits = operands[0]->combine == Combine::Attention && operands[2]->combine == Combine::Attention &&
              operands[1]->parts == operands[0]->parts && operands[3]->parts == operands[2]->parts;
  for (unsigned i = 0; fits && i < 2; ++i) {
    Where y = *operands[i];
    const Where &z = *operands[i + 2];
    fits = y.parts.size() == z.parts.size() && y.agrees(z.dims);
    for (size_t p = 0; fits && p < y.parts.size(); ++p) {
      Indices both;
      std::set_union(y.parts[p].in.begin(), y.parts[p].in.end(), z.parts[p].in.begin(), z.parts[p].in.end(),
                     std::back_inserter(both));
      fits = y.parts[p].isSameSum(z.parts[p]) && both.size() == y.parts[p].in.size() + z.parts[p].in.size();
      y.parts[p].in = std::move(both);
    }
    y.root |= z.root;
    y.dropComplete();
    placed.results.push_back(std::move(y));
  }
  if (fits)
    return placed;
  refuse("can merge only attentions to disjoint sets of keys, but its operands are " + text(*operands[0]) + " and " +
         text(*operands[2]));
  return std::nullopt;
}

/// If an op sums over a split dim, each rank has one addend of the result. Adds these sums. If such a dim is a block of
/// an addend of a sum over the same axes (as in steps of a window), the new sum is inside that sum.
bool Placer::addInnerSums(const Rule &rule, const Rule::Letters &letters, ArrayRef<Dim> dims, Where &result) {
  for (auto [f, dim] : llvm::enumerate(dims)) {
    if (dim.split.empty() || llvm::is_contained(letters, static_cast<int>(f)))
      continue;
    if (rule.combine == Combine::None || (result.combine != Combine::None && result.combine != rule.combine))
      return refuse("reduces dim " + rule.names[f] + ", which is split over " + text(dim.split));
    AxisSet taken = 0;
    for (const PartialSum &part : result.parts)
      taken |= part.axes;
    for (const Index &index : dim.split) {
      PartialSum part{index.axes(), (index.axes() & taken) != 0, {index}};
      if (llvm::any_of(result.parts, [&](const PartialSum &other) { return other.isSameSum(part); }) ||
          (part.inner && rule.combine != Combine::Sum))
        return refuse("sums dim " + rule.names[f] + " inside two sums over " + text(dim.split));
      result.parts.push_back(std::move(part));
      result.combine = rule.combine;
    }
  }
  llvm::sort(result.parts);
  return true;
}

/// The split of each dim of a rule, and the size of the dim on one rank. The size is -1 if no operand or result has the
/// dim.
struct Placer::Split {
  SmallVector<Dim> dims;
  SmallVector<int64_t> sizes;
  double scale = 1;    ///< how often each addend counts, if the results sum copies
  bool copies = false; ///< all ranks have copies, because types do not show how a dim is split
};

/// Whether dims with the same letter may have different sizes: a reshape divides a dim into several, of which only one
/// may be split, and scales have one element for each block. The fingerprint contains these numbers.
static bool mayDiffer(Operation *op) { return isa<ReshapeOp, EncodeOp, DecodeOp>(op); }

/// Reads the dims of operands and results. Those with the same letter must have the same split and size.
bool Placer::readDims(Operation *op, const Rule &rule, ArrayRef<const Where *> operands, Split &split) {
  SmallVector<Dim> &dims = split.dims;
  SmallVector<int64_t> &sizes = split.sizes;
  dims.resize(rule.names.size());
  sizes.assign(rule.names.size(), -1);
  for (auto [i, letters] : llvm::enumerate(rule.operands)) {
    if (operands[i]->note.kind == Note::Blocks)
      return refuse("reads a value with missing blocks");
    if (operands[i]->dims.size() != letters.size())
      return refuse("has operands that do not match its semantics");
    for (auto [f, dim, size] : llvm::zip_equal(letters, operands[i]->dims, localShape(op->getOperand(i)))) {
      if (sizes[f] < 0 || dims[f].any)
        dims[f] = dim;
      else if (!dims[f].agrees(dim))
        return refuse("has dim " + rule.names[f] + " split over " + text(dims[f].split) + " in one operand and over " +
                      text(dim.split));
      if (sizes[f] >= 0 && sizes[f] != size && !mayDiffer(op))
        return refuse("has sizes " + Twine(sizes[f]) + " and " + Twine(size) + " of dim " + rule.names[f]);
      sizes[f] = size;
    }
  }
  for (auto [f, dim] : llvm::enumerate(dims)) {
    bool summed = llvm::any_of(
        rule.results, [&](const Rule::Letters &letters) { return !llvm::is_contained(letters, static_cast<int>(f)); });
    if (sizes[f] < 0)
      dim.any = !rule.whole[f]; // a broadcast
    else if (dim.any && sizes[f] > 1 && summed &&
             !(rule.whole[f] ? isReference || countsWhole(op)
                             : sumCopies(op, rule, static_cast<int>(f), dim, split.scale, split.copies)))
      return refuse("sums the broadcast dim " + rule.names[f] + ", which the proof does not support");
  }
  for (auto [letters, result] : llvm::zip_equal(rule.results, op->getResults()))
    for (auto [f, size] : llvm::zip_equal(letters, localShape(result))) {
      if (sizes[f] >= 0 && sizes[f] != size && !mayDiffer(op))
        return refuse("has sizes " + Twine(sizes[f]) + " and " + Twine(size) + " of dim " + rule.names[f]);
      sizes[f] = size;
    }
  return true;
}

/// Checks the operands that say where a block begins, and that dims which the op needs whole are not split.
bool Placer::checkSplit(Operation *op, Rule &rule, ArrayRef<const Where *> operands, Split &split) {
  SmallVector<Dim> &dims = split.dims;
  SmallVector<int64_t> &sizes = split.sizes;
  bool isAttention = isa<AttentionOp, AttentionGradOp>(op);
  auto drawn = dyn_cast<DrawnOpInterface>(op);
  size_t numOffsets = drawn ? drawn.getOffsetsMutable().size() : 0, numValues = rule.operands.size();
  const Where *scalar = operands.size() > numValues + numOffsets ? operands[numValues] : nullptr;
  if (drawn && drawn.getDropAttr() && !checkDrawn(drawn, rule, operands.take_back(numOffsets), sizes, dims))
    return false;
  if (isAttention ? !checkAttention(op, rule, scalar, sizes, dims)
                  : rule.indexed >= 0 && !checkIndex(op, rule, operands, sizes, dims))
    return false;
  for (auto [f, dim] : llvm::enumerate(dims))
    if (rule.whole[f] && !dim.split.empty())
      return refuse("needs dim " + rule.names[f] + " on every rank, but it is split over " + text(dim.split));
  return true;
}

/// Linear ops may read sums that are not complete. Sets the incomplete sums that all results have in common, and their
/// root.
bool Placer::joinPartial(Operation *op, const Rule &rule, ArrayRef<const Where *> operands, Where &common,
                         Placed &placed) {
  SmallVector<unsigned> partial;
  for (size_t i = 0; i < rule.operands.size(); ++i) {
    common.root |= operands[i]->root;
    if (!operands[i]->parts.empty())
      partial.push_back(static_cast<unsigned>(i));
  }
  for (unsigned i : rule.linear)
    common.copies |= operands[i]->copies;
  if (partial.empty())
    return true;
  if (addCopies(op, operands, partial, placed)) {
    const Where &sum = *operands[partial[0]];
    common.parts = sum.parts;
    common.combine = sum.combine;
    common.copies = false;
    return true;
  }
  common.combine = operands[partial[0]]->combine;
  // An incomplete maximum may only be copied or reduced further. Incomplete sums may be operands of an einsum, if
  // they are sums over different axes, or the operands of any op that is linear in them together.
  bool fits = common.combine == Combine::Max ? isa<ReduceMaxOp, CopyOp>(op)
              : isa<EinsumOp>(op)            ? areOfDifferentAxes(operands, partial)
                                             : ArrayRef<unsigned>(partial) == ArrayRef<unsigned>(rule.linear);
  for (unsigned i : partial)
    fits &= operands[i]->combine == common.combine;
  if (!fits || common.combine == Combine::Attention)
    return refuse("needs complete operands, but operand " + Twine(partial[0]) + " has placement " +
                  text(*operands[partial[0]]));
  std::optional<std::vector<PartialSum>> parts = join(op, operands, partial, placed);
  if (!parts)
    return false;
  common.parts = std::move(*parts);
  return true;
}

/// Reads the splits of all letters, checks operands that must be whole, and then joins the incomplete sums of the
/// operands.
std::optional<Placed> Placer::compute(Operation *op, ArrayRef<const Where *> operands) {
  std::optional<Rule> rule = ruleOf(op);
  if (!rule) {
    refuse("is not an op that the proof knows");
    return std::nullopt;
  }
  Split split;
  if (!readDims(op, *rule, operands, split) || !checkSplit(op, *rule, operands, split))
    return std::nullopt;
  bool waits = llvm::any_of(operands.take_front(rule->operands.size()),
                            [](const Where *operand) { return !operand->parts.empty(); });
  if (waits && isa<MergeAttentionOp>(op))
    return merge(operands);
  Placed placed;
  placed.scale = split.scale;
  Where common;
  common.copies = split.copies;
  if (!joinPartial(op, *rule, operands, common, placed))
    return std::nullopt;
  for (const Rule::Letters &letters : rule->results) {
    Where result = common;
    for (int f : letters)
      result.dims.push_back(split.dims[f]);
    if (!addInnerSums(*rule, letters, split.dims, result))
      return std::nullopt;
    result.dropComplete();
    placed.results.push_back(std::move(result));
  }
  return keepRound(op, *rule, operands, placed) ? std::optional(std::move(placed)) : std::nullopt;
}
