//===- Where.cpp - The place of a value of a rank's program --------------------------------===//
// Indices are linear forms of mesh coordinates mod n, kept in one normal form, so that equal places compare equal. A
// move along a group of axes substitutes the group's new block index into the old form (`Group::moved`).
//===-----------------------------------------------------------------------------===//
#include "Where.h"

#include "llvm/ADT/STLExtras.h"

using namespace pc::proof;
using llvm::ArrayRef;

AxisSet pc::proof::setOf(ArrayRef<uint8_t> axes) {
  AxisSet set = 0;
  for (uint8_t axis : axes)
    set |= AxisSet(1) << axis;
  return set;
}

AxisSet Index::axes() const {
  AxisSet set = 0;
  for (const Term &term : terms)
    set |= setOf(term.axes);
  return set;
}

bool Index::isPlain(ArrayRef<uint8_t> axes) const {
  return n && !constant && terms.size() == 1 && terms[0].factor == 1 && ArrayRef<uint8_t>(terms[0].axes) == axes;
}

/// n stays 0, which marks an unknown index.
Index Index::unknown(AxisSet axes) {
  Index index;
  index.terms.push_back({{}, 1});
  for (uint8_t axis = 0; axis < 32; ++axis)
    if (axes >> axis & 1)
      index.terms[0].axes.push_back(axis);
  return index;
}

AxisSet pc::proof::axesOf(ArrayRef<Index> indices) {
  AxisSet set = 0;
  for (const Index &index : indices)
    set |= index.axes();
  return set;
}

bool pc::proof::areOneFamily(ArrayRef<Index> indices) {
  return llvm::all_of(indices, [&](const Index &index) {
    return index.n && index.n == indices.front().n && index.terms == indices.front().terms;
  });
}

/// The normal form of a linear form mod n.
static Index reduced(int64_t n, ArrayRef<Index::Term> terms, int64_t constant) {
  auto mod = [&](int64_t x) { return ((x % n) + n) % n; };
  Index index;
  index.n = n;
  index.constant = mod(constant);
  for (const Index::Term &term : terms) {
    auto it = llvm::find_if(index.terms, [&](const Index::Term &own) { return own.axes == term.axes; });
    if (it == index.terms.end())
      it = index.terms.insert(it, {term.axes, 0});
    it->factor += term.factor;
  }
  for (Index::Term &term : index.terms)
    term.factor = mod(term.factor);
  llvm::erase_if(index.terms, [](const Index::Term &term) { return !term.factor; });
  llvm::sort(index.terms);
  return index;
}

Index Group::index() const {
  if (partner.empty())
    return reduced(n, Index::Term{axes, 1}, -shift);
  return reduced(n, {{axes, -1}, {partner, -1}}, shift);
}

Indices Group::plain() const {
  Indices list;
  for (auto [axis, size] : llvm::zip_equal(axes, sizes))
    list.push_back(reduced(size, Index::Term{{axis}, 1}, 0));
  return list;
}

Indices Group::indices() const {
  Index block = index();
  return block.isPlain(axes) ? plain() : Indices{block};
}

/// The form may depend on the group only through its coordinate as a whole; that term is replaced by the group's new
/// block.
std::optional<Index> Group::moved(const Index &old) const {
  if (!(old.axes() & setOf(axes)))
    return old;
  auto own = llvm::find_if(old.terms, [&](const Index::Term &term) { return term.axes == axes; });
  if (old.n != n || own == old.terms.end())
    return std::nullopt;
  Index block = index();
  std::vector<Index::Term> terms;
  for (const Index::Term &term : old.terms)
    if (term.axes != axes) {
      if (setOf(term.axes) & setOf(axes))
        return std::nullopt;
      terms.push_back(term);
    }
  for (const Index::Term &term : block.terms)
    terms.push_back({term.axes, own->factor * term.factor});
  return reduced(n, terms, old.constant + own->factor * block.constant);
}

/// If the indices are one per axis of the group, in its order, they are replaced together. Otherwise they are replaced
/// one by one.
std::optional<Indices> Group::moved(ArrayRef<Index> old) const {
  Indices list, own = plain();
  while (!old.empty()) {
    if (old.take_front(own.size()) == ArrayRef<Index>(own)) {
      llvm::append_range(list, indices());
      old = old.drop_front(own.size());
      continue;
    }
    std::optional<Index> index = moved(old.front());
    if (!index)
      return std::nullopt;
    if (index->isPlain(axes))
      llvm::append_range(list, own);
    else
      list.push_back(*index);
    old = old.drop_front();
  }
  return list;
}

/// The axes over which dims are split or sums are distributed.
AxisSet Where::axes() const {
  AxisSet set = 0;
  for (const Dim &dim : dims)
    set |= axesOf(dim.split);
  for (const PartialSum &part : parts)
    set |= axesOf(part.in);
  return set;
}

bool Where::agrees(ArrayRef<Dim> others) const {
  return dims.size() == others.size() && llvm::all_of(llvm::zip_equal(dims, others), [](auto pair) {
           return std::get<0>(pair).agrees(std::get<1>(pair));
         });
}

/// A sum over all members of a group is complete, so its terms need not be listed any more.
void Where::dropComplete() {
  llvm::erase_if(parts, [](const PartialSum &part) {
    return part.in.size() > 1 && areOneFamily(part.in) && static_cast<int64_t>(part.in.size()) >= part.in.front().n;
  });
  if (parts.empty())
    combine = Combine::None;
}

llvm::StringRef pc::proof::nameOf(Combine combine) {
  static constexpr llvm::StringRef names[] = {"whole", "sum", "max", "attention"};
  return names[static_cast<int>(combine)];
}

/// An index as text for messages: "2 dp.tp + 1 mod 8".
static std::string textOf(const Index &index, ArrayRef<std::string> names) {
  std::string text;
  for (const Index::Term &term : index.terms) {
    text += text.empty() ? "" : " + ";
    if (term.factor != 1)
      text += std::to_string(term.factor) + " ";
    for (uint8_t axis : term.axes)
      text += (axis == term.axes.front() ? "" : ".") + (axis < names.size() ? names[axis] : "routed tokens of a round");
  }
  if (index.constant)
    text += " + " + std::to_string(index.constant) + " mod " + std::to_string(index.n);
  return text;
}

std::string pc::proof::textOf(ArrayRef<Index> split, ArrayRef<std::string> names) {
  std::string text;
  for (const Index &index : split)
    text += (text.empty() ? "" : ", ") + ::textOf(index, names);
  return split.empty() ? "_" : split.size() > 1 ? "(" + text + ")" : text;
}

/// A dim is "_" if it is whole and "?" if it is a broadcast.
std::string Where::text(ArrayRef<std::string> names) const {
  std::string text;
  for (const Dim &dim : dims)
    text += (text.empty() ? "" : ", ") + (dim.any ? "?" : textOf(dim.split, names));
  text = "[" + text + "]";
  for (const PartialSum &part : parts)
    text += " " + nameOf(combine).str() + "(" + textOf(part.in, names) + ")";
  for (size_t axis = 0; axis < names.size(); ++axis)
    if (root >> axis & 1)
      text += " root(" + names[axis] + ")";
  return text + (note.kind == Note::Blocks  ? " with blocks missing"
                 : note.kind == Note::Round ? " in round " + textOf(note.blocks, names)
                                            : "");
}
