//===- Place.h - Places of an op's results, given those of its operands ---------------------===//
// Declares the rules of moves (Moves.cpp) and of ops that compute (Compute.cpp). The proof uses only the shapes of
// types. Places are read at the leaves and follow from the ops.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_PLACE_H
#define PC_LIB_PROOF_PLACE_H

#include "Rules.h"
#include "Trace.h"

#include "pc/IR/BlockCodes.h"
#include "pc/IR/MoveRows.h"
#include "llvm/ADT/Twine.h"

#include <map>

namespace pc::proof {

/// Numbers the axes of the mesh. The numbers are the same in all phases.
class Axis {
public:
  /// Sets the mesh of the next program.
  void setMesh(MeshAttr mesh);
  /// Returns the product of the axes' sizes; 0 if the mesh lacks an axis.
  int64_t size(llvm::ArrayRef<uint8_t> axes) const;
  int64_t size(uint8_t axis) const { return sizes[axis]; }
  /// Sets `axes` to those with more than one rank, since nothing is split, summed or moved over the others. Returns
  /// false if the mesh lacks an axis.
  bool number(llvm::ArrayRef<mlir::StringAttr> names, Axes &axes) const;
  llvm::ArrayRef<std::string> names() const { return list; }
  AxisSet setOf(llvm::ArrayRef<mlir::StringAttr> names) const;

private:
  std::vector<std::string> list;
  std::vector<int64_t> sizes;
};

/// The result of the rule for one op.
struct Placed {
  llvm::SmallVector<Where, 3> results;
  /// Pairs of operands that must be the same value of the one-device program.
  llvm::SmallVector<std::pair<unsigned, unsigned>, 2> same;
  /// The result is the same value as the operands, but has more addends of its sum, or more blocks.
  bool isSame = false;
  /// The factors by which results, and operands (by number), are multiplied.
  double scale = 1;
  llvm::SmallVector<std::pair<unsigned, double>, 1> scales;
};

/// Returns the place that `layout` describes; std::nullopt if the mesh does not have one of its axes.
std::optional<Where> read(const Axis &axis, PlaceAttr layout, size_t rank);

/// Input: an op and the places of its operands. Result: the places of its results. If the results have no place,
/// `wrong`, `fault` and `operand` describe the reason. A Placer also keeps the places of the masks of rounds, which
/// distinguish rounds of different blocks.
class Placer {
public:
  /// `isReference` is true if the program is the one-device program itself.
  Placer(const Axis &axis, bool isReference) : axis(axis), isReference(isReference) {}

  /// Returns the places of the results of any op, except leaves, ops with regions and ops that send to other stages. If
  /// the op breaks a rule, returns std::nullopt and sets `wrong`.
  std::optional<Placed> place(mlir::Operation *op, llvm::ArrayRef<const Where *> operands);
  /// Returns the place that the attributes of a leaf or an output describe; std::nullopt if they do not fit its shapes.
  std::optional<Where> leaf(mlir::Value value, PlaceAttr layout, llvm::ArrayRef<int64_t> global);
  /// Returns the place of an element of a stack of microbatches.
  std::optional<Where> element(const Where &stack);
  /// In placed programs: whether the placement in the type equals the place.
  bool agreesWithType(mlir::Value value, const Where &where, AxisSet stageAxis);
  /// Returns the shape on one rank.
  llvm::SmallVector<int64_t> localShape(mlir::Value value) const;

  std::string wrong; ///< the reason of a refusal
  FaultKind fault = FaultKind::Place;
  int operand = -1; ///< the operand that is wrong, if it is one

private:
  /// Returns the place of a move's result.
  std::optional<Where> move(MoveOpInterface move, llvm::ArrayRef<const Where *> operands, Placed &placed);
  /// Returns the place of the codes of an addend, or of the sum of addends from their codes.
  std::optional<Placed> codes(mlir::Operation *op, const Where &x);
  /// Removes from `y` the addends over exactly these axes. Returns false if `y` is not a sum of one addend per rank.
  bool dropAddends(Where &y, const Group &group, Combine combine);
  struct GroupMove; // a rule per kind of move
  /// Sets `group` to the ranks among which `move` moves data. Returns false if the mesh lacks one of its axes.
  bool groupOf(MoveOpInterface move, Group &group);
  bool groupOf(llvm::ArrayRef<mlir::StringAttr> axes, Group &group);
  bool insert(InsertOp insert, const Group &group, Where &y, const Where *base, Placed &placed);
  bool permute(const Group &group, Where &y);
  /// Returns the places of other ops' results, by the rules of their dims. The checks below are for operands that are
  /// the start of a block.
  std::optional<Placed> compute(mlir::Operation *op, llvm::ArrayRef<const Where *> operands);
  struct Split; // the splits of the dims of a rule
  bool readDims(mlir::Operation *op, const Rule &rule, llvm::ArrayRef<const Where *> operands, Split &split);
  bool checkSplit(mlir::Operation *op, Rule &rule, llvm::ArrayRef<const Where *> operands, Split &split);
  bool joinPartial(mlir::Operation *op, const Rule &rule, llvm::ArrayRef<const Where *> operands, Where &common,
                   Placed &placed);
  bool checkIndex(mlir::Operation *op, const Rule &rule, llvm::ArrayRef<const Where *> operands,
                  llvm::ArrayRef<int64_t> sizes, llvm::MutableArrayRef<Dim> dims);
  bool checkDrawn(DrawnOpInterface op, const Rule &rule, llvm::ArrayRef<const Where *> offsets,
                  llvm::ArrayRef<int64_t> sizes, llvm::MutableArrayRef<Dim> dims);
  bool checkAttention(mlir::Operation *op, Rule &rule, const Where *sees, llvm::ArrayRef<int64_t> sizes,
                      llvm::ArrayRef<Dim> dims);
  std::optional<std::vector<PartialSum>> join(mlir::Operation *op, llvm::ArrayRef<const Where *> operands,
                                              llvm::ArrayRef<unsigned> partial, Placed &placed);
  std::optional<Placed> roundOf(RoundOfRowsOp round, const Where &mask);
  std::optional<Placed> addRounds(AddOp sum, llvm::ArrayRef<const Where *> operands);
  bool keepRound(mlir::Operation *op, const Rule &rule, llvm::ArrayRef<const Where *> operands, Placed &placed);
  std::optional<Placed> merge(llvm::ArrayRef<const Where *> operands);
  bool sumCopies(mlir::Operation *op, const Rule &rule, int f, Dim &dim, double &scale, bool &copies);
  bool addCopies(mlir::Operation *op, llvm::ArrayRef<const Where *> operands, llvm::ArrayRef<unsigned> partial,
                 Placed &placed);
  bool addInnerSums(const Rule &rule, const Rule::Letters &letters, llvm::ArrayRef<Dim> dims, Where &result);

  /// Sets `wrong`, and returns false.
  bool refuse(const llvm::Twine &why, FaultKind kind = FaultKind::Place, int which = -1) {
    wrong = why.str();
    fault = kind;
    operand = which;
    return false;
  }
  std::string text(const Where &where) const { return where.text(axis.names()); }
  std::string text(llvm::ArrayRef<Index> split) const { return textOf(split, axis.names()); }

  const Axis &axis;
  bool isReference;
  std::map<std::vector<Dim>, size_t> masks; ///< places of masks of rounds, numbered in the order of their first use
};

} // namespace pc::proof

#endif
