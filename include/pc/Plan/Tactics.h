//===- Tactics.h - What the driver knows of each tactic ------------------------------------===//
// A tactic is a pass with a row in this table: when it runs, which flags mean it, what the mesh must have. Flags, their
// help, plan files, the pipelines of the phases and random plans all read the rows. Defaults are those of the pass
// (Passes.td).
//===-----------------------------------------------------------------------------===//
#ifndef PC_PLAN_TACTICS_H
#define PC_PLAN_TACTICS_H

#include "pc/Plan/Phases.h"
#include "pc/Plan/Plan.h"
#include <deque>
#include <map>

namespace pc {

/// The strategy flags as the user wrote them: --mesh, --microbatches and the flags of tactics.
class StrategyFlags {
public:
  /// Sets a flag. `value` is "" for a flag without value, and "true" for a switch.
  void set(llvm::StringRef flag, llvm::StringRef value) { values[flag.str()] = value.str(); }
  void erase(llvm::StringRef flag) { values.erase(flag.str()); }
  bool given(llvm::StringRef flag) const { return values.count(flag.str()); }
  llvm::SmallVector<std::string> names() const {
    return llvm::to_vector_of<std::string>(llvm::make_first_range(values));
  }
  /// The given value, or `otherwise`.
  std::string text(llvm::StringRef flag, llvm::StringRef otherwise = "") const {
    auto it = values.find(flag.str());
    return it == values.end() ? otherwise.str() : it->second;
  }
  int64_t number(llvm::StringRef flag, int64_t otherwise) const {
    int64_t number = otherwise;
    llvm::StringRef(text(flag)).getAsInteger(10, number);
    return number;
  }

private:
  std::map<std::string, std::string> values;
};

/// The reason why the flags do not give a plan.
struct Refusal {
  pcrt_status status; ///< PCRT_USAGE, or PCRT_INFEASIBLE if no such plan exists
  std::string why;
};

/// A flag of pc-compile that adds a tactic to the plan.
struct TacticFlag {
  enum Kind { Text, OptionalText, Number, Switch, List }; ///< List: may be repeated; commas join the values
  std::string name;
  std::string description = {}; ///< for --help; empty if the forms have descriptions
  Kind kind = Text;
  std::string option = {};                ///< the option of the pass that the flag sets; --help shows its default
  std::vector<std::string> searched = {}; ///< values that --auto tries besides leaving the flag out
  std::vector<std::string> searchedUnknown = {}; ///< also tried if no tactic knows the names of a model's dims
  std::vector<std::string> names = {};           ///< OptionalText: values that may follow without "=", like forms
};

/// A form of a tactic, which its flag can name before the axis: `naive` in --data-parallel=naive:dp.
struct TacticForm {
  std::string name;
  std::string axes = {};    ///< the mesh axes if the flag names none; empty: the pass's default
  bool anyAxes = false;     ///< it works over any number of axes
  int weightAxis = -1;      ///< grids: the axis that shards weights like ZeRO; norms are then split
  int dataAxis = -1;        ///< the axis that splits the batch like data parallelism; `besides` uses the others
  std::string besides = {}; ///< another form, which works over the other axes
  std::vector<int> sequenceAxes = {}; ///< the axes that split the sequences of a microbatch
};

struct TacticInfo {
  std::string pass; ///< "pc-zero", a registered pass
  Phase phase;      ///< the phase whose pipeline runs it: step, placed, staged or scheduled (how moves are made)
  std::vector<TacticFlag> flags = {}; ///< the first one may name one of `forms`
  std::string formOption = {};        ///< the option of the pass that selects the form, such as "mode"
  std::vector<TacticForm> forms = {}; ///< if the flag names no form, the pass's default is used
  bool splitsVocabulary = false;      ///< it also splits heads, over the last of its axes
  bool splitsBatch = false;           ///< it splits the batch over its axis, and nothing else
  bool shardsParameters = false;      ///< splits the batch and parameters, or only gradients and states, over its axis
  bool sharesTokens = false;          ///< it splits sequences over its axis, or supports a tactic that does
  bool takesQkvApart = false;         ///< places q, k and v of one layer differently
  bool ofExperts = false;             ///< it splits experts, so it does nothing for a model without experts
  std::string once = {};              ///< why two such tactics ({0} and {1}) exclude each other; empty: they do not
  using FromFlags = std::optional<Refusal>(const TacticInfo &, const StrategyFlags &, Plan &);
  /// Adds the tactics that the flags ask for at the end of the plan, or says why it cannot. The default adds one tactic
  /// along a mesh axis for a flag form:axis.
  FromFlags *fromFlags = nullptr;

  /// The row of the tactic's form, or null.
  const TacticForm *formOf(const Tactic &tactic) const;
};

/// Returns those axes of the tactic over which its form splits sequences.
llvm::SmallVector<llvm::StringRef> sequenceAxes(const Tactic &tactic);

/// All tactics, in the order in which flags add them to a plan.
const std::deque<TacticInfo> &tactics();

/// Adds a row at the end, for a tactic of another library or of a test. Call it before the flags are made.
void registerTactic(TacticInfo info);

/// Adds the tactic of a flag form:axis along mesh axes of the plan, if the flag is given or the mesh has the flag's
/// default axis.
TacticInfo::FromFlags alongAxis;

} // namespace pc

#endif
