//===- fuzz-each.cpp - How the compiler ends for each of many programs ----===//
// usage: pc-fuzz-each < LINES
// For each line, "FILE STEP BEFORE FLAGS PASSES" separated by tabs, the program in FILE is read three times, in a
// process of its own: by PASSES, a pipeline of pc-opt; by the proof, after the programs STEP and BEFORE; and by
// pc-compile with FLAGS up to `planned`. Empty fields are left out; "-" means no FLAGS. For each line, prints "ok" and
// the three statuses, or "BAD" and the reason: a signal, a timeout, or an internal error.
//===----------------------------------------------------------------------===//
#include "pc/Driver/Flags.h"
#include "pc/Driver/Registration.h"
#include "pc/Proof/Proof.h"
#include "pc/Support/Source.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/raw_ostream.h"
#include <csignal>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <iostream>
#include <sys/wait.h>
#include <unistd.h>

using namespace mlir;

namespace {
/// A program, in a context of its own.
struct Program {
  explicit Program(StringRef path) {
    DialectRegistry registry;
    pc::registerDialects(registry);
    context.emplace(registry, MLIRContext::Threading::DISABLED);
    context->getDiagEngine().registerHandler([](Diagnostic &diagnostic) { // printed, as tools do
      llvm::errs() << diagnostic.getLocation() << ": " << diagnostic << "\n";
    });
    module = read(path);
  }
  OwningOpRef<ModuleOp> read(StringRef path) { return pc::parseProgram(path.str(), sources.emplace_back(), &*context); }

  std::deque<llvm::SourceMgr> sources; ///< one a file
  std::optional<MLIRContext> context;
  OwningOpRef<ModuleOp> module;
};
} // namespace

static int byPasses(StringRef path, StringRef passes) {
  Program program(path);
  if (!program.module)
    return PCRT_BAD_INPUT;
  PassManager manager(&*program.context);
  return failed(parsePassPipeline(passes, manager)) || failed(manager.run(*program.module));
}

static int byProof(StringRef path, StringRef step, StringRef before) {
  Program program(path);
  if (!program.module)
    return PCRT_BAD_INPUT;
  OwningOpRef<ModuleOp> first = program.read(step), second = program.read(before);
  pc::Proof proof;
  if (failed(proof.begin(*first)) || (step != before && failed(proof.prove(*second, "before"))))
    return PCRT_INTERNAL;
  return failed(proof.prove(*program.module, "given")) ? PCRT_VERIFICATION : PCRT_OK;
}

static int byCompiler(StringRef path, StringRef text) {
  Program program(path);
  FailureOr<pc::Origin> origin = program.module ? pc::originOf(*program.module) : FailureOr<pc::Origin>();
  pc::CompileFlags flags;
  pc::CompileOptions options;
  std::string error;
  if (failed(origin) || failed(flags.parseFromString(text)))
    return PCRT_BAD_INPUT;
  if (pcrt_status status = flags.resolve(&*program.context, options, error, *origin))
    return status;
  options.to = pc::Phase::Planned;
  options.output = "/dev/null";
  return origin->phase > options.to ? PCRT_USAGE : pc::compile(*program.module, origin->phase, options);
}

/// Runs `body` in a child process. Returns its status, or a description of how it failed.
static int inChild(llvm::function_ref<int()> body, std::string &wrong) {
  pid_t child = fork();
  if (child == 0) {
    int nothing = open("/dev/null", O_WRONLY);
    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
    alarm(60);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    wrong = WTERMSIG(status) == SIGALRM ? "no end" : strsignal(WTERMSIG(status));
  return WEXITSTATUS(status);
}

int main() {
  pc::registerPasses();
  for (std::string line; std::getline(std::cin, line);) {
    SmallVector<StringRef> words;
    StringRef(line).split(words, '\t');
    words.resize(5);
    StringRef path = words[0], step = words[1], before = words[2], flags = words[3], passes = words[4];
    std::string wrong, said;
    auto run = [&](StringRef what, llvm::function_ref<int()> body) {
      std::string own;
      int status = inChild(body, own);
      if (own.empty() && status == PCRT_INTERNAL && what != "pc-opt")
        own = "internal error";
      if (!own.empty())
        wrong += (wrong.empty() ? "" : ", ") + (what + ": " + own).str();
      said += " " + std::to_string(status);
    };
    if (!passes.empty())
      run("pc-opt", [&] { return byPasses(path, passes); });
    if (!step.empty())
      run("the proof", [&] { return byProof(path, step, before); });
    if (!flags.empty())
      run("pc-compile", [&] { return byCompiler(path, flags == "-" ? "" : flags); });
    llvm::outs() << (wrong.empty() ? "ok" + said : "BAD " + wrong) << "\n";
    llvm::outs().flush();
  }
}
