//===- PlanNumbers.h - The numbers of a plan that bounds depend on ------------------------===//
// Input: one plan of a family, then sizes of axes and microbatches. Result: the numbers that bounds read, without text.
// Invariant: after `resize`, the numbers equal the PlanNumbers of the resized plan.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_SPACE_PLANNUMBERS_H
#define PC_LIB_SEARCH_SPACE_PLANNUMBERS_H

#include "pc/Pipeline/Schedule.h"
#include "pc/Plan/Tactics.h"
#include "pc/Search/Search.h"

namespace pc {

/// The numbers of a plan that a search reads millions of times. They are read from one plan of a family; `resize`
/// computes the numbers of another plan of the family.
class PlanNumbers {
public:
  PlanNumbers(const Plan &plan, mlir::MLIRContext *context);
  void resize(llvm::ArrayRef<int64_t> sizes, int64_t microbatches);

  // Equal for all plans of the family.
  int zero = 0;             ///< the stage of ZeRO; 0: none
  double gradientBytes = 4; ///< bytes of an element of a gradient that is sent, at least
  double sentWidth = 4;     ///< bytes of an element of a parameter that is sent, at least
  bool readsCodes = false;  ///< products of layers read floats of 8 bits
  bool statesAway = false, mastersAway = false, parametersAway = false, activationsAway = false; ///< --offload
  bool hasStages = false;
  const pipeline::NamedSchedule *schedule = nullptr;
  std::string layers; ///< layers of stages, as given by the flag
  std::string alone;  ///< tactics that every rank follows by itself, as text
  std::string kept;   ///< the text of `alone` without recomputation
  // Different from plan to plan of the family.
  int64_t microbatches = 1;
  PlanShape shape;
  double split = 1;                    ///< ranks that share parameters and heads, without stages and data ranks
  double layerRanks = 1;               ///< ranks that share a layer of a microbatch
  double data = 1;                     ///< data ranks
  int64_t sequenceRanks = 1;           ///< ranks that split a data rank's sequences, in forms of tensor parallelism
  double sharders = 1;                 ///< the data ranks among which ZeRO divides states
  llvm::SmallVector<int64_t, 6> sizes; ///< sizes of the mesh's axes
  mlir::MLIRContext *context;
  llvm::SmallVector<mlir::StringAttr, 6> names;
  llvm::SmallVector<mlir::StringAttr, 2> dataAxes() const { return axesOf(dataBits); } ///< with more than one rank
  /// The axes over which gradients are summed.
  llvm::SmallVector<mlir::StringAttr, 2> summingAxes() const { return axesOf(summingBits); }
  bool hasData() const { return dataBits; }
  uint32_t dataBits = 0, summingBits = 0; ///< bit sets of `dataAxes` and `summingAxes`

  /// The bytes that a data rank sends for the parameters. They are for the sums of gradients, if none are sent before
  /// the last microbatch, and for a gather, if parameters are gathered once per step.
  struct DataBytes {
    double sums = 0, gather = 0;
  };
  DataBytes dataBytesOnce(double parameterBytes) const;

private:
  llvm::SmallVector<mlir::StringAttr, 2> axesOf(uint32_t bits) const;
  /// The use of an axis of the mesh by tactics.
  struct Axis {
    bool isStages = false, splitsVocabulary = false, isData = false, shards = false, splitsSequences = false,
         sharesTokens = false;
  };
  llvm::SmallVector<Axis, 6> axes;
};

/// Returns the seconds of a gather over axes of the plan's mesh: the latency, and the seconds per byte.
std::pair<double, double> gatherSeconds(const PlanNumbers &plan, llvm::ArrayRef<mlir::StringAttr> axes,
                                        const MachineModel &machine);

} // namespace pc

#endif
