//===- Where.h - The place of a value of a rank's program ----------------------------------===//
// A place gives, for each dim of the whole value, the number of the block that a rank holds, and for each incomplete
// sum the numbers of the addends that it has. Both numbers are affine forms of the rank's coordinates. Affine forms are
// enough: in step s of a window rank i holds block i - s, and in exchanges on a grid rank (i, j) holds block s - i - j.
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

/// The index is the sum of a constant and of factor * coordinate over terms, mod n. If n is 0, the index is one addend
/// of which only the axes are known (all coordinates except one have zeros).
struct Index {
  /// A term of the sum: `factor` times the mixed-radix number of the coordinates on `axes`.
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
  /// Whether the index is just the coordinate on `axes`.
  bool isPlain(llvm::ArrayRef<uint8_t> axes) const;
  static Index unknown(AxisSet axes);
};
using Indices = std::vector<Index>;
AxisSet axesOf(llvm::ArrayRef<Index> indices);
/// Whether the indices differ only in their constants.
bool areOneFamily(llvm::ArrayRef<Index> indices);

/// The group of a move, and the block to which a slice, an insert or a permute refers. Let i be the coordinate of a
/// rank. The block is that of coordinate i - shift, mod n. With a partner group, in which the rank has coordinate j,
/// the block is that of coordinate shift - i - j.
struct Group {
  Axes axes, partner;
  int64_t n = 1, shift = 0;
  std::vector<int64_t> sizes; ///< sizes of the axes

  /// Return the block as one index, and as a list. If the block is just the coordinate (shift 0, no partner), the list
  /// has one index for each axis.
  Index index() const;
  Indices indices() const;
  /// Returns the coordinate of each axis.
  Indices plain() const;
  /// Returns `index` with the coordinate on `axes` replaced by the coordinate of the rank whose value arrives. Returns
  /// std::nullopt if the index depends on `axes` in another way.
  std::optional<Index> moved(const Index &index) const;
  std::optional<Indices> moved(llvm::ArrayRef<Index> indices) const;
};

/// One dim of a value.
struct Dim {
  bool any = false; ///< a broadcast dim: the value does not depend on the index, so it fits every split
  Indices split;    ///< major to minor
  auto operator<=>(const Dim &) const = default;
  /// Whether an elementwise op may read a value with this dim together with one with the dim `other`.
  bool agrees(const Dim &other) const { return any || other.any || split == other.split; }
};

/// How incomplete values are combined: as a sum, as a maximum, or as attention to sets of keys.
enum class Combine { None, Sum, Max, Attention };

/// A sum over axes that contains the addends `in`.
struct PartialSum {
  AxisSet axes = 0;
  bool inner = false; ///< the sum is inside each addend of another sum over these axes
  Indices in;         ///< ascending
  auto operator<=>(const PartialSum &) const = default;
  bool isSameSum(const PartialSum &other) const { return axes == other.axes && inner == other.inner; }
};

/// Further facts about a value, in addition to its place.
struct Note {
  /// The kind of fact that is known about the elements of the value.
  enum Kind {
    None,
    Offset, ///< the first index of this rank's block, of size `number`, on `axes`
    Counts, ///< the number of keys that each query sees in the block at shift `number` on `axes`
    Blocks, ///< only the blocks `blocks` of dim `number` exist
    Round   ///< only entries of the round `blocks` exist; the first `number` dims select an entry
  } kind = None;
  Axes axes;
  int64_t number = 0;
  Indices blocks;
  bool isZero = false; ///< Round: other entries are 0, not undefined
  auto operator<=>(const Note &) const = default;
};

/// The place of a value on all ranks at once. Two values with equal places and equal fingerprints are the same tensor
/// on every rank, except where it is rooted and only coordinate 0 counts.
struct Where {
  std::vector<Dim> dims;
  Combine combine = Combine::None;
  std::vector<PartialSum> parts; ///< ascending
  AxisSet root = 0;              ///< axes on which only coordinate 0 has the value
  bool copies = false;           ///< a complete value that sums copies; ranks may add theirs up
  Note note;

  Where() = default;
  explicit Where(size_t rank) : dims(rank) {}
  auto operator<=>(const Where &) const = default;
  /// Returns all axes on whose coordinates the part of a rank depends.
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
