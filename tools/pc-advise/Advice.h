//===- Advice.h - The best plan of a model for each number of ranks -------===//
// The plan search finds the best plan for each number. Rules of thumb, derived from the machine's and the model's
// figures, are compared with the results of the search.
//===----------------------------------------------------------------------===//
#ifndef PC_TOOLS_ADVICE_H
#define PC_TOOLS_ADVICE_H

#include "pc/Cost/Machine.h"
#include "pc/Driver/Compile.h"
#include "pc/Search/Search.h"

namespace pc {

/// The request. `flags` are those of every compile, as options of the phases' pipelines: "precision=bf16".
struct AdviceOptions {
  std::vector<int64_t> ranks;
  std::string flags;
  double tokens = 0; ///< the tokens of a training run; 0: its cost is not reported
};

/// The result of the search for a number of ranks.
struct Size {
  int64_t ranks = 0;
  bool fits = false;
  bool offloads = false; ///< the plan keeps values outside of the device
  std::string plan, why; ///< `why`: the reason if there is no plan
  double seconds = 0;    ///< the seconds of a step
  int64_t bytes = 0;
  double gap = 0;
  int64_t tensorRanks = 1; ///< the number of ranks that split a layer's products
};
/// A rule of thumb. `holds` is empty if the search found no plan with which to compare it.
struct Rule {
  std::string rule, derived, checked;
  std::optional<bool> holds;
};

/// All results, in the order of the requested numbers of ranks.
struct Advice {
  std::string model, machine;
  StepWork work;
  double parameters = 0, stepTokens = 0, tokens = 0;
  std::vector<Size> sizes;
  std::vector<Rule> rules;

  double tokensPerSecond(const Size &size) const { return stepTokens / size.seconds; }
  /// The hours that all ranks together need for all tokens.
  double rankHours(const Size &size) const {
    return tokens / tokensPerSecond(size) * static_cast<double>(size.ranks) / 3600;
  }
  void print(llvm::raw_ostream &os) const;
  llvm::json::Object json() const;
};

/// Searches plans of the model program `model` and fills `advice`. On failure returns the status and sets `error`.
pcrt_status advise(mlir::ModuleOp model, const AdviceOptions &options, Advice &advice, std::string &error);

} // namespace pc

#endif
