//===- tactics-test.cpp - A tactic of a test, with its pass and its row ---===//
// Run by tactics.test.
//===----------------------------------------------------------------------===//
#include "pc/Driver/Flags.h"
#include "pc/Driver/Registration.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace pc;

namespace {

/// The pass of the tactic. It renames the output of the loss.
struct Tag : PassWrapper<Tag, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(Tag)
  Tag() = default;
  Tag(const Tag &other) : PassWrapper(other) {}
  StringRef getArgument() const override { return "pc-test-tag"; }
  StringRef getDescription() const override { return "Name the loss"; }
  void runOnOperation() override {
    if (name == "bad")
      return signalPassFailure();
    getOperation().walk([&](OutputOp output) {
      if (output.getKind() == OutputKind::Loss)
        output.setName(name);
    });
  }
  Option<std::string> name{*this, "name", llvm::cl::desc("The name"), llvm::cl::init("none")};
};

/// The row of the tactic.
const TacticInfo row = {
    .pass = "pc-test-tag",
    .phase = Phase::Placed,
    .flags = {{"tag", "The name of the loss", TacticFlag::Text, "name"}},
    .once = "two tags: '{0}' and '{1}'",
    .fromFlags = [](const TacticInfo &row, const StrategyFlags &flags, Plan &plan) -> std::optional<Refusal> {
      if (flags.text("tag") == "none")
        return Refusal{PCRT_USAGE, "--tag=none is no name"};
      if (flags.given("tag"))
        plan.tactics.push_back(Tactic(row.pass).with("name", flags.text("tag")));
      return {};
    }};

} // namespace

/// Checks that every row names a pass and, if a row has forms, that one of them is the default.
static bool rowsAreRight() {
  for (const TacticInfo &info : tactics()) {
    Tactic byDefault(info.pass);
    bool right = PassInfo::lookup(info.pass) && (info.forms.empty() || info.formOf(byDefault));
    for (const TacticFlag &flag : info.flags)
      right &= flag.option.empty() || !byDefault.option(flag.option).empty();
    if (!right) {
      llvm::outs() << "the row of " << info.pass << " names what its pass does not have\n";
      return false;
    }
  }
  llvm::outs() << "tactics: " << tactics().size() << " rows\n";
  return true;
}

/// The options that flags give. If the flags are refused, prints the reason and returns std::nullopt.
static std::optional<CompileOptions> optionsOf(MLIRContext &context, StringRef text) {
  CompileFlags flags;
  CompileOptions options;
  std::string error;
  if (failed(flags.parseFromString(text)) || flags.resolve(&context, options, error)) {
    llvm::outs() << error << "\n";
    return std::nullopt;
  }
  return options;
}

int main(int argc, char **argv) {
  llvm::outs().SetUnbuffered(); // in order with errors
  DialectRegistry registry;
  registerDialects(registry);
  registerPasses();
  if (argc != 2 || !rowsAreRight())
    return 1;
  PassRegistration<Tag>();
  registerTactic(row);

  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  CompileFlags().printHelp(2, 40);
  auto compile = [&](const CompileOptions &options) {
    OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(argv[1], &context);
    for (Phase phase : {Phase::Step, Phase::Placed})
      if (pcrt_status status = module ? runPhase(*module, phase, options) : PCRT_BAD_INPUT) {
        llvm::outs() << "pc-test-tag fails with exit code " << status << "\n";
        return;
      }
    module->walk([&](OutputOp output) {
      if (output.getKind() == OutputKind::Loss)
        llvm::outs() << *output << "\n";
    });
  };
  std::optional<CompileOptions> options = optionsOf(context, "mesh=dp=2 tag=loss_of_mine");
  if (!options)
    return 1;
  llvm::outs() << options->plan.text(&context);
  compile(*options);
  optionsOf(context, "tag=none");

  // The tactic also works in a plan file.
  std::string file = std::string(argv[1]) + ".plan";
  std::error_code code;
  llvm::raw_fd_ostream(file, code) << "pc.plan <> [\"pc-test-tag\", \"pc-test-tag{name=other}\"] microbatches 1\n";
  optionsOf(context, "plan=" + file);
  if (std::optional<CompileOptions> bad = optionsOf(context, "tag=bad"))
    compile(*bad);
  return 0;
}
