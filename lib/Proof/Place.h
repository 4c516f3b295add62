//===- Place.h - Where the results of an op lie, given its operands -------------------------===//
// The rules of moves (Moves.cpp) and of ops that compute (Compute.cpp). Of types only shapes are believed: where values
// lie begins at the leaves and follows from the ops.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_PLACE_H
#define PC_LIB_PROOF_PLACE_H

#include "Rules.h"
#include "Trace.h"

#include "pc/IR/MoveRows.h"
#include "pc/IR/PC.h"
#include "llvm/ADT/Twine.h"

#include <map>

namespace pc::proof {

/// The axes of the mesh by number; the same ones in all phases.
class Axis {
public:
  /// Sets the mesh of the next program.
  void setMesh(MeshAttr mesh);
  /// 0 if the mesh has no such axis.
  int64_t size(llvm::ArrayRef<uint8_t> axes) const;
  int64_t size(uint8_t axis) const { return sizes[axis]; }
  /// Those of more than one rank: nothing is split, summed or moved over the others. False if the mesh lacks an axis.
  bool number(llvm::ArrayRef<mlir::StringAttr> names, Axes &axes) const;
  llvm::ArrayRef<std::string> names() const { return list; }
  AxisSet setOf(llvm::ArrayRef<mlir::StringAttr> names) const;

private:
  std::vector<std::string> list;
  std::vector<int64_t> sizes;
};

/// What follows from one op.
struct Placed {
  llvm::SmallVector<Where, 3> results;
  /// Pairs of operands that must be the same value of the one-device program.
  llvm::SmallVector<std::pair<unsigned, unsigned>, 2> same;
  /// The result is that value again: more addends of one sum, more blocks of one value.
  bool isSame = false;
};

/// Input: an op and the places of its operands. Result: the places of its results; if there is none, `wrong`, `fault`
/// and `operand` say why. State besides: the places of the masks of rounds, which tell rounds of different blocks
/// apart.
class Placer {
public:
  /// `isReference`: of the program of one device, to which nothing is compared.
  Placer(const Axis &axis, bool isReference) : axis(axis), isReference(isReference) {}

  /// The result of any op but leaves and those with regions or to other stages; none if it breaks a rule, which `wrong`
  /// then says.
  std::optional<Placed> place(mlir::Operation *op, llvm::ArrayRef<const Where *> operands);
  /// What a leaf, or an output, says of where it lies; none if that does not fit its shapes.
  std::optional<Where> leaf(mlir::Value value, PlaceAttr layout, llvm::ArrayRef<int64_t> global);
  /// An element of a stack of microbatches.
  std::optional<Where> element(const Where &stack);
  /// In placed programs: whether the type says where the value lies.
  bool agreesWithType(mlir::Value value, const Where &where, AxisSet stageAxis);
  /// The shape on one rank.
  llvm::SmallVector<int64_t> localShape(mlir::Value value) const;

  std::string wrong; ///< why not
  FaultKind fault = FaultKind::Place;
  int operand = -1; ///< which one says so, if it is one

private:
  /// Moves: what a group's ranks hold afterwards.
  std::optional<Where> move(MoveOpInterface move, llvm::ArrayRef<const Where *> operands, Placed &placed);
  bool insert(InsertOp insert, const Group &group, Where &y, const Where *base, Placed &placed);
  bool permute(const Group &group, Where &y);
  /// Other ops, by the rule of their dims; the checks below are for operands that say where a block begins.
  std::optional<Placed> compute(mlir::Operation *op, llvm::ArrayRef<const Where *> operands);
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
  bool addInnerSums(const Rule &rule, const Rule::Letters &letters, llvm::ArrayRef<Dim> dims, Where &result);

  /// Sets `wrong`; false.
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
  std::map<std::vector<Dim>, size_t> masks; ///< of rounds: where they lie, numbered as they were met
};

} // namespace pc::proof

#endif
