//===- rules.cpp - The two tables of rules agree --------------------------===//
// usage: pc-proof-rules FILE.mlir...
// Compares the compiler's factor rule with the proof's own rule for every op with factors in the files, and checks that
// the files have one of each op.
//===----------------------------------------------------------------------===//
#include "Proof/Rules.h"
#include "pc/IR/MoveRows.h"
#include "pc/IR/PC.h"
#include "pc/Support/Source.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/raw_ostream.h"
#include <map>
#include <set>

using namespace mlir;
using namespace pc;

namespace {

int failures = 0;
void fail(Operation *op, const llvm::Twine &why) {
  llvm::outs() << "FAIL " << *op << ": " << why << "\n";
  ++failures;
}

/// Compares two rules of an op. Finds for each letter of one rule the factor of the other that stands for the same dim.
class Match {
public:
  Match(Operation *op, const FactorRule &rule, const proof::Rule &own) : op(op), rule(rule), own(own) {}

  void check() {
    for (size_t i = own.operands.size(); i < rule.operands.size(); ++i)
      if (bool isPerQuery = isa<AttentionOp, AttentionGradOp>(op); !rule.operands[i].empty() && !isPerQuery)
        fail(op, "an operand after those of the proof's rule has dims");
    if (rule.operands.size() < own.operands.size() || rule.results.size() != own.results.size())
      return fail(op, "the rules have other numbers of operands or results");
    for (auto [a, b] : llvm::zip(own.operands, rule.operands))
      pair(a, b);
    for (auto [a, b] : llvm::zip(own.results, rule.results))
      pair(a, b);
    for (auto [letter, factor] : factorOf) {
      // Whether queries may be split depends on the order of the sequence in the compiler's rule, and on positions in
      // the proof's rule, so this flag is not compared for queries.
      bool isQuery = isa<AttentionOp, AttentionGradOp>(op) && own.names[letter] == "s";
      if (!isQuery && own.whole[letter] != rule.factors[factor].whole)
        fail(op, "one rule alone keeps dim " + own.names[letter] + " whole");
      bool combined = llvm::any_of(
          own.results, [&](const proof::Rule::Letters &letters) { return !llvm::is_contained(letters, letter); });
      // merge_attention occurs only in local programs, which have no placements, so the compiler's rule need not keep d
      // whole.
      if (combined && !isa<MergeAttentionOp>(op) && own.combine == proof::Combine::None && !rule.factors[factor].whole)
        fail(op, "the compiler sums dim " + own.names[letter] + ", the proof does not");
    }
    if ((own.combine == proof::Combine::Max) != (rule.reduction == PartialKind::Max))
      fail(op, "one rule alone takes a maximum");
    SmallVector<SmallVector<unsigned, 2>, 2> linear;
    if (isa<EinsumOp>(op))
      for (unsigned operand : own.linear)
        linear.push_back({operand});
    else if (!own.linear.empty())
      linear.push_back(own.linear);
    if (linear != rule.linear)
      fail(op, "they are linear in other operands");
  }

private:
  void pair(ArrayRef<int> letters, ArrayRef<int> factors) {
    if (letters.size() != factors.size())
      return fail(op, "the rules have other numbers of dims");
    for (auto [letter, factor] : llvm::zip(letters, factors))
      if (factorOf.try_emplace(letter, factor).first->second != factor ||
          letterOf.try_emplace(factor, letter).first->second != letter)
        fail(op, "dims that are one index in one rule are two in the other");
  }

  Operation *op;
  const FactorRule &rule;
  const proof::Rule &own;
  std::map<int, int> factorOf, letterOf;
};

} // namespace

int main(int argc, char **argv) {
  DialectRegistry registry;
  registry.insert<PCDialect, func::FuncDialect>();
  MLIRContext context(registry);
  // These ops are not in the files: a leaf, a table for which the proof has a rule of offsets instead, two ops of model
  // programs, and one of local programs, whose rows belong to a rank's block.
  std::set<StringRef> met = {"rope_table", "key_counts", "cross_entropy", "logsumexp", "round_of_rows"};
  for (int i = 1; i < argc; ++i) {
    llvm::SourceMgr sources;
    OwningOpRef<ModuleOp> module = parseProgram(argv[i], sources, &context);
    if (!module)
      return 1;
    module->walk([&](FactorOpInterface op) {
      if (isa<RopeTableOp, KeyCountsOp, CrossEntropyOp, LogSumExpOp, RoundOfRowsOp>(op.getOperation()))
        return;
      met.insert(op->getName().stripDialect());
      std::optional<proof::Rule> own = proof::ruleOf(op);
      if (!own)
        return fail(op, "the proof has no rule of it");
      Match(op, op.getFactorRule(), *own).check();
    });
  }
  for (RegisteredOperationName name : context.getRegisteredOperationsByDialect("pc"))
    if (name.hasInterface<FactorOpInterface>() && !met.contains(name.stripDialect())) {
      llvm::outs() << "FAIL no example of " << name.getStringRef() << "\n";
      ++failures;
    }
  llvm::outs() << met.size() << " kinds of ops, " << failures << " failures\n";
  return failures != 0;
}
