//===- pc-check-generation.cpp - Does a step generate what its model says? ===//
// Runs random requests through a step program, and compares each chosen token with the model's forward pass over the
// whole sequence. All values are doubles.
//===----------------------------------------------------------------------===//
#include "Requests.h"

#include "pc/IR/Codes.h"
#include "pc/IR/Generation.h"
#include "pc/IR/Stages.h"
#include "pc/Reference/Feeds.h"
#include "pc/Reference/Interpreter.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/Source.h"
#include "pc/Support/ToolMain.h"
#include "pcrt/description.h"
#include "pcrt/pcrt.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>
#include <map>

namespace cl = llvm::cl;

static cl::OptionCategory category("pc-check-generation options");
static cl::list<std::string> files(cl::Positional, cl::desc("<model.mlir> <step.mlir>"), cl::cat(category));
static cl::opt<uint64_t> seed("seed", cl::desc("Seed of the parameters and of the requests"), cl::init(1),
                              cl::cat(category));
static cl::opt<int64_t> count("requests", cl::desc("Number of requests (default 8)"), cl::init(8), cl::cat(category));
static cl::opt<double> tolerance("tolerance",
                                 cl::desc("Largest relative difference that counts as equal (default 1e-12)"),
                                 cl::init(1e-12), cl::cat(category));

/// Returns the sizes of the first step program in `module`. `slots` is 0 if the program does not generate text.
static StepSizes sizesOf(mlir::ModuleOp module) {
  StepSizes sizes;
  module.walk([&](pc::ProgramOp program) { sizes.vocabulary = program.getVocabulary(); });
  module.walk([&](pc::StateOp state) {
    if (!state.getCache())
      return;
    pc::Shape shape = pc::leafLayout(state, state.getValue()).global;
    const pc::CacheSizes cache(shape);
    sizes.groups = cache.batch, sizes.slots = cache.slots, sizes.context = cache.parts * cache.context;
  });
  module.walk([&](pc::InputOp input) {
    if (input.getKind() != pc::InputKind::Data)
      return;
    if (*input.getName() == "chosen")
      sizes.chosen = pc::leafLayout(input, input.getValue()).global[1];
    if (*input.getName() == "tokens")
      sizes.size = pc::leafLayout(input, input.getValue()).global[1];
    if (*input.getName() == "tokens.chunk")
      sizes.chunk = pc::leafLayout(input, input.getValue()).global[1];
    sizes.samples |= *input.getName() == "sampling";
  });
  return sizes.size ? sizes : StepSizes();
}

namespace {
/// The caches, which each step begins with as the step before has left them. Entries that were not written are NaN.
class Caches {
public:
  void feed(pc::StateOp state, pc::Tensor &value) const {
    auto known = values.find(nameOf(state));
    value = known == values.end() ? pc::Tensor(value.shape, NAN) : known->second;
  }
  void take(const pc::Results &results) {
    for (const pc::NamedTensor &result : results)
      if (llvm::StringRef name = result.name; name.consume_front("update "))
        values[name.str()] = result.value;
  }
  /// Makes the entries of a slot those that were not written.
  void clear(int64_t place) {
    for (auto &[name, value] : values) {
      const pc::CacheSizes cache(value.shape);
      const int64_t size = cache.heads * cache.context * cache.width, ofPart = cache.batch * cache.slots * size;
      for (int64_t start = 0; start < value.size(); start += ofPart)
        std::fill_n(value.data.begin() + start + place * size, size, NAN);
    }
  }

private:
  static std::string nameOf(pc::StateOp state) { return (state.getName() + " of " + state.getParameter()).str(); }
  std::map<std::string, pc::Tensor> values;
};
} // namespace

namespace {
/// The matrices that a step has as codes and scales. The model's parameters are their products.
class CodedMatrices {
public:
  /// Keeps the value of a leaf that has codes or scales.
  void take(mlir::Operation *leaf, const pc::Tensor &value) {
    auto parameter = mlir::dyn_cast<pc::ParameterOp>(leaf);
    if (parameter && pc::isCode(mlir::getElementTypeOrSelf(parameter.getType())))
      if (pc::StateOp state = pc::scalesOf(parameter)) {
        codes[parameter.getName()] = value;
        dims[parameter.getName()] = pc::dimsOfState(state, parameter).value_or(llvm::SmallVector<int64_t>());
      }
    if (auto state = mlir::dyn_cast<pc::StateOp>(leaf); state && state.getName() == PCRT_SCALE)
      scales[state.getParameter()] = value;
  }

  /// Sets a parameter of the model to the product. Its elements have the order of the codes.
  void feed(llvm::StringRef name, pc::Tensor &value) const {
    auto known = codes.find(name);
    if (known == codes.end())
      return;
    const pc::Tensor &code = known->second, &scale = scales.find(name)->second;
    const llvm::SmallVector<int64_t> &kept = dims.find(name)->second;
    for (int64_t i = 0; i < code.size(); ++i) {
      int64_t index = 0, rest = i, stride = 1;
      for (int64_t dim = std::ssize(code.shape) - 1; dim >= 0; --dim) {
        const int64_t at = rest % code.shape[dim];
        rest /= code.shape[dim];
        if (!llvm::is_contained(kept, dim))
          continue;
        index += at * stride;
        stride *= code.shape[dim];
      }
      value[i] = code[i] * scale[index];
    }
  }

private:
  llvm::StringMap<pc::Tensor> codes, scales;        ///< by parameter
  llvm::StringMap<llvm::SmallVector<int64_t>> dims; ///< for each parameter, the dims that its scales have
};
} // namespace

/// Runs all requests, and keeps the matrices that are stored as codes. Returns false after an error.
static bool generate(mlir::ModuleOp module, Requests &requests, CodedMatrices &matrices) {
  Caches caches;
  pc::RunOptions options;
  options.seed = seed;
  options.exact = true;
  options.feed = [&](mlir::Operation *leaf, pc::Tensor &value) {
    matrices.take(leaf, value);
    if (auto state = mlir::dyn_cast<pc::StateOp>(leaf); state && state.getCache())
      caches.feed(state, value);
    auto input = mlir::dyn_cast<pc::InputOp>(leaf);
    if (!input || input.getKind() != pc::InputKind::Data)
      return;
    if (const pc::Tensor *filled = requests.input(*input.getName()))
      value = *filled;
  };
  while (requests.next()) {
    for (int64_t place : requests.newPlaces())
      caches.clear(place);
    auto results = pc::interpret(module, options);
    if (failed(results))
      return false;
    caches.take(*results);
    for (const std::string &part : requests.parts()) {
      pc::Tensor *tokens = pc::find(*results, "generated token" + part);
      pc::Tensor *logprobs = pc::find(*results, "generated logprob" + part);
      if (!tokens || !logprobs) {
        pc::errs() << "pc-check-generation: error: " << files[1] << " has no outputs 'token" << part << "' and 'logprob"
                   << part << "'\n";
        return false;
      }
      if (std::string wrong = requests.finish(part, *tokens, *logprobs); !wrong.empty()) {
        pc::errs() << "pc-check-generation: " << wrong << "\n";
        return false;
      }
    }
  }
  return true;
}

/// A model that generates drops nothing.
static void removeDropout(mlir::ModuleOp module) {
  module.walk([](pc::AttentionOp attention) { attention.removeDropAttr(); });
  module.walk([](pc::DropoutOp dropout) {
    dropout.getResult().replaceAllUsesWith(dropout.getX());
    dropout.erase();
  });
}

/// Compares the choices of all requests with the model's logits, in groups of as many requests as its batch has rows.
/// Returns false after an error.
static bool compare(mlir::ModuleOp model, const std::vector<Request> &requests, const CodedMatrices &matrices,
                    double &largest) {
  int64_t rows = 0;
  model.walk([&](pc::ProgramOp program) { rows = program.getBatch(); });
  bool isRight = true;
  for (size_t first = 0; first < requests.size(); first += size_t(rows)) {
    llvm::ArrayRef<Request> batch = llvm::ArrayRef(requests).drop_front(first).take_front(size_t(rows));
    pc::RunOptions options;
    options.seed = seed;
    options.exact = true;
    options.feed = [&](mlir::Operation *leaf, pc::Tensor &value) {
      if (auto parameter = mlir::dyn_cast<pc::ParameterOp>(leaf))
        matrices.feed(parameter.getName(), value);
      auto input = mlir::dyn_cast<pc::InputOp>(leaf);
      if (!input || input.getKind() != pc::InputKind::Tokens)
        return;
      for (auto [row, request] : llvm::enumerate(batch))
        llvm::copy(request.tokens, value.data.begin() + int64_t(row) * value.shape[1]);
    };
    auto results = pc::interpret(model, options);
    if (failed(results))
      return false;
    pc::Tensor *logits = pc::find(*results, "logits logits");
    if (!logits) {
      pc::errs() << "pc-check-generation: error: " << files[0] << " has no logits\n";
      return false;
    }
    const int64_t classes = logits->shape[2];
    for (auto [row, request] : llvm::enumerate(batch))
      for (const Choice &choice : request.choices) {
        int64_t at = (int64_t(row) * logits->shape[1] + choice.sampling.position) * classes;
        std::string wrong =
            wrongChoice(choice, llvm::ArrayRef(logits->data).slice(size_t(at), size_t(classes)), tolerance, largest);
        if (wrong.empty() || !isRight)
          continue;
        isRight = false;
        pc::errs() << "pc-check-generation: request " << first + row << " at position " << choice.sampling.position
                   << ": " << wrong << "\n";
      }
  }
  return isRight;
}

/// Prints why programs cannot be used, and returns the exit code.
static int refuse(pcrt_status code, const llvm::Twine &why) {
  pc::errs() << "pc-check-generation: error: " << why << "\n";
  return code;
}

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-check-generation");
  cl::HideUnrelatedOptions(category);
  std::string message;
  llvm::raw_string_ostream errors(message);
  if (!cl::ParseCommandLineOptions(
          argc, argv,
          "pc-check-generation: checks whether a step generates what its model says\n\nRuns random requests through "
          "the step of any phase in double precision, on the simulated ranks of its\nmesh, and compares each token "
          "with the model's forward pass over the whole sequence. Exit code 0: equal;\n5: they differ; 11: cannot "
          "say.\n",
          &errors)) {
    pc::errs() << message;
    return PCRT_USAGE;
  }
  if (files.size() != 2)
    return refuse(PCRT_USAGE,
                  "expected a model program and a step program, got " + llvm::Twine(files.size()) + " files");
  if (count < 1)
    return refuse(PCRT_USAGE, "--requests must be positive");
  mlir::DialectRegistry registry;
  registry.insert<pc::PCDialect, mlir::func::FuncDialect>();
  mlir::MLIRContext context(registry);
  context.printOpOnDiagnostic(false);
  llvm::SourceMgr sources[2];
  mlir::OwningOpRef<mlir::ModuleOp> modules[2];
  for (int i : {0, 1}) {
    mlir::SourceMgrDiagnosticHandler handler(sources[i], &context, pc::errs());
    modules[i] = pc::parseProgram(files[i], sources[i], &context);
    if (!modules[i])
      return PCRT_BAD_INPUT;
    if (failed(pc::canInterpret(*modules[i])))
      return PCRT_UNDECIDED;
  }
  StepSizes model, step = sizesOf(*modules[1]);
  if (!modules[0]->lookupSymbol("model"))
    return refuse(PCRT_BAD_INPUT, files[0] + " has no function @model");
  if (!step.slots)
    return refuse(PCRT_BAD_INPUT, files[1] + " is not a program that generates (pc-compile --mode=generate --to=step)");
  modules[0]->walk([&](pc::ProgramOp program) {
    model.context = program.getSequence(), model.vocabulary = program.getVocabulary();
  });
  if (model.context < step.context || model.vocabulary != step.vocabulary)
    return refuse(PCRT_BAD_INPUT,
                  llvm::formatv("{0} is not the model of {1}: its sequence and vocabulary are {2} and "
                                "{3}, the step's context and vocabulary {4} and {5}",
                                files[0], files[1], model.context, model.vocabulary, step.context, step.vocabulary)
                      .str());
  removeDropout(*modules[0]);
  Requests requests(step, seed, count);
  CodedMatrices matrices;
  double largest = 0;
  {
    mlir::SourceMgrDiagnosticHandler handler(sources[1], &context, pc::errs());
    if (!generate(*modules[1], requests, matrices))
      return PCRT_VERIFICATION;
  }
  mlir::SourceMgrDiagnosticHandler handler(sources[0], &context, pc::errs());
  if (!compare(*modules[0], requests.all(), matrices, largest)) {
    llvm::outs() << "different\n";
    return PCRT_VERIFICATION;
  }
  size_t choices = 0;
  for (const Request &request : requests.all())
    choices += request.choices.size();
  llvm::outs() << requests.steps() << " steps, " << choices << " choices of " << count
               << " requests: largest relative difference " << llvm::format("%.1e", largest) << "\nequal\n";
  return PCRT_OK;
}
