//===- CompletePlan.cpp - A search that Ctrl-C ends at once ------------------------------------===//
// A search runs on a separate thread, with its own copy of the model. Ctrl-C asks it to end. If it does not end soon,
// the thread is abandoned, and the best plan so far is the answer.
//===-----------------------------------------------------------------------------===//
#include "pc/Search/CompletePlan.h"
#include "Order/PlanSearch.h"
#include "Price/ChooseOffload.h"
#include "Price/ChooseRecompute.h"

#include "mlir/Parser/Parser.h"
#include "pc/Driver/Registration.h"
#include "pc/Support/NotedSignals.h"
#include <condition_variable>
#include <cstdlib>
#include <thread>
#include <unistd.h>

using namespace mlir;
using namespace pc;

namespace {

/// Owns everything that a search reads, so that the search may outlive its caller.
class OwnSearch {
public:
  /// Copies the model as text into a separate context, because an abandoned search must not share anything with the
  /// caller. Uses one thread if the caller's context has no threads.
  OwnSearch(ModuleOp given, const CompileOptions &asked, const MachineModel &machine)
      : context(dialects(), threading(given)), options(asked), machine(machine) {
    std::string text;
    llvm::raw_string_ostream os(text);
    given->print(os, OpPrintingFlags().enableDebugInfo());
    model = parseSourceString<ModuleOp>(text, &context);
    options.timing = nullptr;
    if (!given.getContext()->isMultithreadingEnabled())
      options.search.threads = 1;
    search.emplace(*model, options, this->machine);
  }

  void run();
  /// Waits for this time and returns whether the search has ended.
  bool endsIn(std::chrono::milliseconds time) {
    std::unique_lock<std::mutex> lock(mutex);
    return changed.wait_for(lock, time, [&] { return hasEnded; });
  }

  std::atomic<bool> isWanted = true;
  std::optional<PlanSearch> search;
  // These are set when the search has ended:
  PlanAnswer answer;
  pcrt_status status = PCRT_OK;
  std::string errors;

private:
  static DialectRegistry dialects() {
    DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }
  static MLIRContext::Threading threading(ModuleOp given) {
    return given.getContext()->isMultithreadingEnabled() ? MLIRContext::Threading::ENABLED
                                                         : MLIRContext::Threading::DISABLED;
  }

  MLIRContext context;
  CompileOptions options;
  MachineModel machine;
  OwningOpRef<ModuleOp> model;
  std::mutex mutex;
  std::condition_variable changed;
  bool hasEnded = false;
};

} // namespace

/// Runs on the search's thread. Errors are collected, since the caller prints them only if it still waits for the
/// answer.
void OwnSearch::run() {
  ScopedDiagnosticHandler collect(&context, [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      errors += (errors.empty() ? "" : "; ") + diagnostic.str();
    return success();
  });
  status = search->run(answer, [&] { return isWanted.load(); });
  std::scoped_lock<std::mutex> lock(mutex);
  hasEnded = true;
  changed.notify_all();
}

/// An abandoned thread must not access objects that the end of the process destroys.
static void endWithoutOthers() {
  auto end = [](int status, void *) {
    llvm::outs().flush();
    std::fflush(nullptr);
    _exit(status);
  };
  static const int once = on_exit(end, nullptr);
  (void)once;
}

/// Searches the plan.
static pcrt_status choosePlan(ModuleOp model, CompileOptions &options, const MachineModel &machine) {
  constexpr auto often = std::chrono::milliseconds(20);
  constexpr auto patience = std::chrono::seconds(2); // for the search to react to Ctrl-C
  NotedSignals interrupt({SIGINT}, SA_RESETHAND);    // a second Ctrl-C ends the process
  // The search runs in a thread of its own, so that Ctrl-C can take the best plan so far even if a compile does not
  // return soon.
  auto own = std::make_shared<OwnSearch>(model, options, machine);
  std::thread thread([own] { own->run(); });
  bool ends = false;
  while (!(ends = own->endsIn(often)) && !interrupt.first())
    continue;
  own->isWanted = !interrupt.first();
  if (!ends && !own->endsIn(patience)) {
    thread.detach();
    endWithoutOthers();
    std::optional<PlanAnswer> known = own->search->soFar();
    if (!known) {
      model.emitError() << "the search was interrupted before it found a plan";
      return PCRT_RESOURCE;
    }
    llvm::errs() << known->said;
    options.plan = std::move(known->plan);
    options.searched = std::move(known->report);
  } else {
    thread.join();
    if (!own->errors.empty())
      model.emitError() << own->errors;
    if (own->status)
      return own->status;
    llvm::errs() << own->answer.said;
    options.plan = std::move(own->answer.plan);
    options.searched = std::move(own->answer.report);
  }
  options.search.compositions = own->search->mostCompositions();
  return PCRT_OK;
}

/// Returns comments for the plan file. They have what is needed to repeat the search, such as the figures of the
/// machine.
static std::string howItWasFound(const CompileOptions &options, const MachineModel &machine) {
  const AutoOptions &search = options.search;
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "// found by --auto" << (search.free.empty() ? "" : "=" + search.free);
  if (search.ranks)
    os << " --ranks=" << search.ranks;
  for (const std::string &name : search.pins.names())
    os << " " << textOf(search.pins, name);
  if (options.cuda())
    os << " --target=cuda";
  if (!options.kernels.archs.empty())
    os << " --arch=" << llvm::join(options.kernels.archs, ",");
  os << " --search-compositions=" << search.compositions << "\n// for at most ";
  if (int64_t bytes = options.memoryLimitOn(machine))
    os << bytes << " bytes per rank";
  else
    os << "unlimited memory";
  os << ", on a machine\n// " << llvm::json::Value(machine.file()) << "\n";
  return text;
}

/// Searches the plan first. Then, for a program of phase `model`, chooses the recomputation if the plan leaves it open.
static pcrt_status completeWithOffload(ModuleOp model, Phase from, CompileOptions &options) {
  if (options.search.isOn) {
    std::string error;
    std::optional<MachineModel> machine = MachineModel::find(options.machine, error);
    if (!machine) {
      model.emitError() << error;
      return PCRT_USAGE;
    }
    if (pcrt_status status = choosePlan(model, options, *machine))
      return status;
    options.howFound = howItWasFound(options, *machine);
  }
  return from == Phase::Model ? chooseRecompute(model, options) : PCRT_OK;
}

pcrt_status pc::completePlan(ModuleOp model, Phase from, CompileOptions &options) {
  return chooseOffload(model, from, options, completeWithOffload);
}
