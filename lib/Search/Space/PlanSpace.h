//===- PlanSpace.h - The plans that --auto may choose from -----------------------------===//
// Enumerates plans: sets of families that split layers in the same way, families of plans that differ only in sizes of
// axes and in microbatches, and plans. Flags that the user gave are fixed; the tables of the tactics name the values of
// the others. Nothing is priced here.
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
  StrategyFlags flags;                                     ///< but --mesh and --microbatches
  llvm::SmallVector<std::pair<std::string, int64_t>> axes; ///< outermost first; 0: any size above 1
  Plan plan;                                               ///< one of them
};

/// Families that split layers in the same ways, over the same axes: there may be others, that share out layers or
/// sequences.
struct PlanSet {
  PlanFamily base;                                          ///< with no more axes and flags than these need
  bool isPlan = false;                                      ///< whether `base.plan` is one: these flags may need others
  llvm::SmallVector<std::pair<std::string, int64_t>> inner; ///< axes that split layers, with their sizes; 0: open
  std::vector<PlanFamily> families;
};

/// Plans as flags: those that were given, and all values that the rows of the tactics name for the others.
class PlanSpace {
public:
  /// `knowsDims`: tactics know the names of the model's dims.
  /// `hasExperts`: it has a mixture of experts.
  /// `mixesSequences`: with other microbatches it has another loss.
  PlanSpace(const AutoOptions &search, int64_t batch, bool knowsDims, bool hasExperts, bool mixesSequences)
      : search(search), batch(batch), knowsDims(knowsDims), hasExperts(hasExperts), mixesSequences(mixesSequences) {}

  /// Whether a flag, or an axis, is searched where it is not given.
  bool isFree(llvm::StringRef name) const;
  /// Reads which axes there may be; why that is impossible, or nothing.
  std::optional<Refusal> read();

  /// All there is. Flags that do not go together are no plan; `refusal`, if empty, gets why.
  std::vector<PlanSet> sets(std::string &refusal) const;
  /// The sizes that the axes of a set's layers may have.
  std::vector<AxisSizes> innerSizes(const PlanSet &set) const;
  /// The sizes of all axes of a family, where those of the set's layers are `inner`.
  std::vector<AxisSizes> sizes(const PlanFamily &family, const PlanSet &set, llvm::ArrayRef<int64_t> inner) const;
  /// Numbers of microbatches that are searched: where these change the loss, the one that is given, or one.
  llvm::SmallVector<int64_t> microbatches() const;
  /// Whether there is another plan with the same program.
  bool isRepeated(const PlanFamily &family, int64_t microbatches) const;
  /// A plan of a family; nothing where such sizes do not go.
  std::optional<Plan> planOf(const PlanFamily &family, llvm::ArrayRef<int64_t> sizes, int64_t microbatches,
                             std::string &refusal) const;

  int64_t ranks = 0;
  /// The sizes of the model's dims: an axis that splits layers divides one of them.
  std::set<int64_t> dims;

private:
  /// Axes of a mesh, some of them with sizes, and the flag that they need.
  struct MeshForm {
    std::vector<std::pair<std::string, int64_t>> axes; ///< 0: to be searched
    llvm::SmallVector<std::string> grid;               ///< those of the flag, which go together
    std::string flag, form;
  };

  /// Why the list of --auto is none, or nothing.
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

/// "dp=2,tp=2 pc-zero{...} microbatches 2", without numbers, or without what says a layer's recomputation.
std::string textOf(const Plan &plan, bool withNumbers = true, bool withRecompute = true);

} // namespace pc

#endif
