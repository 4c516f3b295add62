//===- PlanSpace.h - The plans that --auto may choose from -----------------------------===//
// Enumerates plans at three levels: sets of families that split layers in the same way; families of plans that differ
// only in sizes of axes and in microbatches; and plans. Flags that the user gave are fixed; the tables of the tactics
// list the values of the others. Nothing is priced here.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_SEARCH_SPACE_PLANSPACE_H
#define PC_LIB_SEARCH_SPACE_PLANSPACE_H

#include "pc/Plan/AutoPlan.h"
#include "pc/Plan/Plan.h"
#include <set>

namespace pc {

using AxisSizes = llvm::SmallVector<int64_t, 6>;

/// Plans that differ only in numbers: in sizes of axes, and in microbatches.
struct PlanFamily {
  StrategyFlags flags;                                     ///< all except --mesh and --microbatches
  llvm::SmallVector<std::pair<std::string, int64_t>> axes; ///< outermost first; 0: any size above 1
  Plan plan;                                               ///< one of the plans
};

/// Families that split layers in the same way, over the same axes. A family may have more axes, which divide layers or
/// sequences.
struct PlanSet {
  PlanFamily base;     ///< has only the axes and flags that the set needs
  bool isPlan = false; ///< whether `base.plan` is valid (its flags may need other flags)
  llvm::SmallVector<std::pair<std::string, int64_t>> inner; ///< axes that split layers, with their sizes; 0: open
  std::vector<PlanFamily> families;
};

/// The space of plans, in terms of flags: the given flags, and for other flags all values in the rows of the tactics.
class PlanSpace {
public:
  /// `knowsDims` says whether tactics know the names of the model's dims, and `hasExperts` whether the model has a
  /// mixture of experts. `mixesSequences` says whether its loss depends on the number of microbatches.
  PlanSpace(const AutoOptions &search, int64_t batch, bool knowsDims, bool hasExperts, bool mixesSequences)
      : search(search), batch(batch), knowsDims(knowsDims), hasExperts(hasExperts), mixesSequences(mixesSequences) {}

  /// Whether a flag, or an axis, is searched if it is not given.
  bool isFree(llvm::StringRef name) const;
  /// Reads which axes are possible. If no plan is possible, returns the reason.
  std::optional<Refusal> read();

  /// Returns all sets. If flags cannot be combined, returns no set and writes the reason to `refusal`, unless it
  /// already holds one.
  std::vector<PlanSet> sets(std::string &refusal) const;
  /// The sizes that the axes of a set's layers may have.
  std::vector<AxisSizes> innerSizes(const PlanSet &set) const;
  /// The possible sizes of all axes of a family, if the axes that split layers have the sizes `inner`.
  std::vector<AxisSizes> sizes(const PlanFamily &family, const PlanSet &set, llvm::ArrayRef<int64_t> inner) const;
  /// The numbers of microbatches that are searched. If they change the loss, this is only the given number, or 1.
  llvm::SmallVector<int64_t> microbatches() const;
  /// Whether there is another plan with the same program.
  bool isRepeated(const PlanFamily &family, int64_t microbatches) const;
  /// A plan of a family; std::nullopt if these sizes are not possible.
  std::optional<Plan> planOf(const PlanFamily &family, llvm::ArrayRef<int64_t> sizes, int64_t microbatches,
                             std::string &refusal) const;

  int64_t ranks = 0;
  /// The sizes of the model's dims. The size of an axis that splits layers divides one of them.
  std::set<int64_t> dims;

private:
  /// Axes of a mesh, some of them with sizes, and the flag that they need.
  struct MeshForm {
    std::vector<std::pair<std::string, int64_t>> axes; ///< size 0: searched
    llvm::SmallVector<std::string> grid;               ///< the axes of the flag, which are used together
    std::string flag, form;
  };

  /// If the list of --auto is wrong, returns the reason.
  std::optional<Refusal> checkFree(const MeshForm &given) const;
  void addForms();
  void addSets(const MeshForm &form, uint32_t present, std::vector<PlanSet> &all, std::string &refusal) const;
  void addFamilies(PlanSet &set, const StrategyFlags &flags, const PlanFamily &base, std::string &refusal) const;
  void vary(std::vector<StrategyFlags> &ways, const TacticFlag &flag) const;

  const AutoOptions &search;
  int64_t batch;
  bool knowsDims, hasExperts, mixesSequences;
  std::vector<MeshForm> forms;
};

/// "dp=2,tp=2 pc-zero{...} microbatches 2", without numbers, or without the tactic of recomputation.
std::string textOf(const Plan &plan, bool withNumbers = true, bool withRecompute = true);

} // namespace pc

#endif
