//===- Where.h - Where a value of a rank's program lies ------------------------------------===//
// Per dim of the whole value which block a rank holds, per sum that is not complete which addends it has. Both are
// indices: affine forms of the rank's coordinates, because in the steps of windows rank i holds block i - s, and in
// exchanges between pairs on a grid block s - i - j.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_WHERE_H
#define PC_LIB_PROOF_WHERE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pc::proof {

/// Axes of the mesh by number, major to minor.
using Axes = std::vector<uint8_t>;
/// A set of axes: bit a is axis a.
using AxisSet = uint32_t;
/// Used instead of an axis to count rounds of rows. All axes of a mesh have smaller numbers.
constexpr uint8_t roundAxis = 31;
AxisSet setOf(llvm::ArrayRef<uint8_t> axes);

/// constant + the sum of factor * coordinate on axes, mod n; or, with n 0, one addend about which it is only known on
/// which axes it depends (zeros on all coordinates but one).
struct Index {
  /// factor times the mixed-radix number of the coordinates on `axes`.
  struct Term {
    Axes axes;
    int64_t factor = 0;
    auto operator<=>(const Term &) const = default;
  };
  int64_t n = 0;
  std::vector<Term> terms; ///< ascending
  int64_t constant = 0;

  auto operator<=>(const Index &) const = default;
  AxisSet axes() const;
  /// Nothing but the coordinate on `axes`.
  bool isPlain(llvm::ArrayRef<uint8_t> axes) const;
  static Index unknown(AxisSet axes);
};
using Indices = std::vector<Index>;
AxisSet axesOf(llvm::ArrayRef<Index> indices);
/// Whether the indices differ only in their constants.
bool areOneFamily(llvm::ArrayRef<Index> indices);

/// The group that a move is over, and whose block a slice, an insert or a permute means: that of coordinate i - shift,
/// or with a partner, on whose axes a rank has coordinate j, of coordinate shift - i - j, mod n.
struct Group {
  Axes axes, partner;
  int64_t n = 1, shift = 0;
  std::vector<int64_t> sizes; ///< of the axes

  /// The block as one index, and as a list. If the block is just the coordinate (shift 0, no partner), the list has one
  /// index for each axis.
  Index index() const;
  Indices indices() const;
  /// The coordinate of each axis.
  Indices plain() const;
  /// `index` with the coordinate on `axes` replaced by that of the rank whose value arrives; none if it depends on
  /// `axes` in another way.
  std::optional<Index> moved(const Index &index) const;
  std::optional<Indices> moved(llvm::ArrayRef<Index> indices) const;
};

/// One dim of a value.
struct Dim {
  bool any = false; ///< a broadcast: the value does not depend on the index, so it fits every split
  Indices split;    ///< major to minor
  auto operator<=>(const Dim &) const = default;
  /// Whether an elementwise op may read both.
  bool agrees(const Dim &other) const { return any || other.any || split == other.split; }
};

/// What a value that is not complete is an operand of: a sum, a maximum, attention to a set of keys.
enum class Combine { None, Sum, Max, Attention };

/// A sum over axes that contains the addends `in`.
struct PartialSum {
  AxisSet axes = 0;
  bool inner = false; ///< inside of each addend of another sum over these axes
  Indices in;         ///< ascending
  auto operator<=>(const PartialSum &) const = default;
  bool isSameSum(const PartialSum &other) const { return axes == other.axes && inner == other.inner; }
};

/// What a value is besides its place.
struct Note {
  enum Kind {
    None,
    Offset, ///< the first index of this rank's block, of size `number`, on `axes`
    Counts, ///< how many keys of the block at shift `number` on `axes` each query sees
    Blocks, ///< of dim `number` only `blocks` are there
    Round   ///< only entries of a round are there, the one of `blocks`; the first `number` dims say which entry
  } kind = None;
  Axes axes;
  int64_t number = 0;
  Indices blocks;
  bool isZero = false; ///< Round: other entries are 0, and not anything
  auto operator<=>(const Note &) const = default;
};

/// The place of a value on all ranks at once. Two values with equal places and equal fingerprints are the same tensor
/// on every rank, except where it is rooted and only coordinate 0 counts.
struct Where {
  std::vector<Dim> dims;
  Combine combine = Combine::None;
  std::vector<PartialSum> parts; ///< ascending
  AxisSet root = 0;              ///< axes on which only coordinate 0 has the value
  Note note;

  Where() = default;
  explicit Where(size_t rank) : dims(rank) {}
  auto operator<=>(const Where &) const = default;
  /// All axes on whose coordinates it depends which part a rank holds.
  AxisSet axes() const;
  bool agrees(llvm::ArrayRef<Dim> others) const;
  /// Drops sums that contain all addends.
  void dropComplete();
  /// "[dp, _, ?] sum(tp)", for messages.
  std::string text(llvm::ArrayRef<std::string> names) const;
};
llvm::StringRef nameOf(Combine combine);
std::string textOf(llvm::ArrayRef<Index> split, llvm::ArrayRef<std::string> names);

} // namespace pc::proof

#endif
