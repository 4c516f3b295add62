//===- Tactics.h - What the driver knows of each tactic ------------------------------------===//
// A tactic is a pass with a row here: when it runs, which flags mean it, what it needs of the mesh. Flags, their help,
// plan files, the pipelines of the phases and random plans all read the rows. Defaults are the pass's own (Passes.td).
//===-----------------------------------------------------------------------------===//
#ifndef PC_PLAN_TACTICS_H
#define PC_PLAN_TACTICS_H

#include "pc/Plan/Phases.h"
#include "pc/Plan/Plan.h"
#include <deque>
#include <map>

namespace pc {

/// The strategy flags as the user wrote them: --mesh, --microbatches and those of the tactics.
class StrategyFlags {
public:
  /// `value` is "" for a flag without one, "true" for a switch.
  void set(llvm::StringRef flag, llvm::StringRef value) { values[flag.str()] = value.str(); }
  void erase(llvm::StringRef flag) { values.erase(flag.str()); }
  bool given(llvm::StringRef flag) const { return values.count(flag.str()); }
  llvm::SmallVector<std::string> names() const {
    return llvm::to_vector_of<std::string>(llvm::make_first_range(values));
  }
  /// What was given, or `otherwise`.
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

/// Why flags mean no plan.
struct Refusal {
  pcrt_status status; ///< PCRT_USAGE, or PCRT_INFEASIBLE for what does not exist
  std::string why;
};

/// A flag of pc-compile that means a tactic.
struct TacticFlag {
  enum Kind { Text, OptionalText, Number, Switch };
  std::string name;
  std::string description = {}; ///< for --help; empty for one that takes forms: they describe it
  Kind kind = Text;
  std::string option = {};                ///< the option of the pass that the flag sets; --help shows its default
  std::vector<std::string> searched = {}; ///< what --auto tries besides leaving the flag out
  std::vector<std::string> searchedUnknown = {}; ///< what besides where no tactic knows the names of a model's dims
  std::vector<std::string> names = {}; ///< of an OptionalText: values that may stand after it without "=", as forms may
};

/// A form of a tactic, which its flag can name before the axis: `naive` in --data-parallel=naive:dp.
struct TacticForm {
  std::string name;
  std::string axes = {}; ///< the mesh axes where the flag names none; empty: the pass's default
  bool anyAxes = false;  ///< it works over any number of axes
  int weightAxis = -1; ///< grids: which of the axes shards weights as ZeRO does; such a form splits what norms work on
  int dataAxis = -1;   ///< which of the axes shares out sequences, as data ranks do; the others are those of `besides`
  std::string besides = {};           ///< another form
  std::vector<int> sequenceAxes = {}; ///< which of the axes split a microbatch's sequences
};

struct TacticInfo {
  std::string pass; ///< "pc-zero", a registered pass
  Phase phase;      ///< whose pipeline runs it: step, placed, staged or scheduled (how moves are made)
  std::vector<TacticFlag> flags = {}; ///< the first one may name one of `forms`
  std::string formOption = {};        ///< the pass's option that says the form: "mode"
  std::vector<TacticForm> forms = {}; ///< by default the one that the pass has by default
  bool splitsVocabulary = false;      ///< and heads, over the last of its axes
  bool splitsBatch = false;           ///< and nothing else, over its axis
  bool shardsParameters = false;      ///< or their gradients and state, over its axis; and the batch
  bool sharesTokens = false;          ///< of sequences, over its axis; or goes with what does
  bool takesQkvApart = false;         ///< places q, k and v of one layer differently
  bool ofExperts = false;             ///< it splits experts: nothing for a model without
  std::string once = {};              ///< why two of them ({0} and {1}) do not go together; empty: they do
  using FromFlags = std::optional<Refusal>(const TacticInfo &, const StrategyFlags &, Plan &);
  /// Adds to the plan what the flags ask for, at its end, or says why not. By default one along a mesh axis, for
  /// a flag form:axis.
  FromFlags *fromFlags = nullptr;

  /// The form that a tactic has, or null.
  const TacticForm *formOf(const Tactic &tactic) const;
};

/// The axes over which the form of a tactic splits sequences, of those that the tactic names.
llvm::SmallVector<llvm::StringRef> sequenceAxes(const Tactic &tactic);

/// All tactics, in the order in which flags add them to a plan.
const std::deque<TacticInfo> &tactics();

/// Adds a row at the end, for a tactic of another library or of a test. Call it before the flags are made.
void registerTactic(TacticInfo info);

/// Adds the tactic of a flag form:axis along mesh axes of the plan, where the flag is given or the mesh has the axis of
/// its default.
TacticInfo::FromFlags alongAxis;

} // namespace pc

#endif
