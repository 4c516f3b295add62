//===- pc-import.cpp - Imports a Hugging Face directory as a model program -===//
// Reads config.json and the headers of the weights (lib/Import) and prints the model as IR.
//===----------------------------------------------------------------------===//
#include "pc/IR/PC.h"
#include "pc/Import/Import.h"
#include "pc/Proof/Digest.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/Output.h"
#include "pc/Support/ToolMain.h"

#include "mlir/IR/Verifier.h"
#include "llvm/Support/CommandLine.h"

namespace cl = llvm::cl;

static cl::OptionCategory category("pc-import options");
static cl::opt<std::string> directory(cl::Positional, cl::desc("<directory with config.json>"), cl::Required,
                                      cl::cat(category));
static cl::opt<std::string> output("o", cl::desc("Output file (default: standard output)"),
                                   cl::value_desc("model.mlir"), cl::init("-"), cl::cat(category));
static cl::opt<int64_t> batch("batch", cl::desc("Global batch, in sequences"), cl::value_desc("N"), cl::cat(category));
static cl::opt<double> dropout("dropout", cl::desc("Probability of dropout in the place of all that config.json says"),
                               cl::value_desc("P"), cl::cat(category));
static cl::opt<int64_t>
    documents("documents",
              cl::desc("Token that ends a document: those of one sequence do not see each other, and positions "
                       "begin anew"),
              cl::value_desc("EOS"), cl::cat(category));
static cl::opt<int64_t> capacity("expert-capacity",
                                 cl::desc("Tokens of a sequence that an expert of a mixture takes: the first ones that "
                                          "choose it (default: all)"),
                                 cl::value_desc("N"), cl::cat(category));
static cl::opt<int64_t> sequence("seq", cl::desc("Tokens per sequence"), cl::value_desc("N"), cl::cat(category));
static cl::opt<int64_t> targets("target-seq",
                                cl::desc("Targets per sequence of models with an encoder (default: as many as tokens)"),
                                cl::value_desc("N"), cl::cat(category));

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-import");
  cl::HideUnrelatedOptions(category);
  std::string message;
  llvm::raw_string_ostream errors(message);
  if (!cl::ParseCommandLineOptions(
          argc, argv,
          "pc-import: a Hugging Face directory becomes a model program\n\n"
          "Architectures: gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, phi3, olmo2, gpt_neox (Pythia),\n"
          "gemma, gemma2, gemma3_text, opt, gpt_neo, bloom, bert, t5. A config.json alone is enough: weights are then "
          "drawn when the compiled program starts. Safetensors beside it are checked and stay in place;\n"
          "weights of another form are an error.\n",
          &errors)) {
    pc::errs() << message;
    return PCRT_USAGE;
  }
  if (!batch.getNumOccurrences() || !sequence.getNumOccurrences()) {
    pc::errs() << "pc-import: error: the size of a step is missing; for example --batch 8 --seq 1024\n";
    return PCRT_USAGE;
  }
  if (failed(pc::checkOutputs("pc-import", pcrt::filesOfModel("the model", directory), {{"-o", output}})))
    return PCRT_USAGE;
  mlir::MLIRContext context;
  llvm::SourceMgr sources;
  pc::ToolDiagnostics diagnostics("pc-import", sources, &context);
  pcrt_status status = PCRT_OK;
  pc::ImportOptions options{batch, sequence};
  if (dropout.getNumOccurrences())
    options.dropout = dropout;
  if (targets.getNumOccurrences())
    options.targets = targets;
  if (documents.getNumOccurrences())
    options.documents = documents;
  if (capacity.getNumOccurrences())
    options.expertCapacity = capacity;
  mlir::OwningOpRef<mlir::ModuleOp> module = pc::importModel(&context, directory, options, status);
  if (!module)
    return status;
  if (failed(mlir::verify(*module)))
    return PCRT_INTERNAL;
  for (auto program : module->getOps<pc::ProgramOp>())
    if (!program.getWeights())
      mlir::emitRemark(mlir::FileLineColLoc::get(&context, directory.getValue(), 0, 0))
          << "no weights here: a run draws them, unless it is given --init or --load";
  pc::noteDigest(*module);
  // Names of layers are locations, which reports and messages use.
  mlir::OpPrintingFlags flags;
  flags.enableDebugInfo();
  std::string why = pc::writeOutput(output, [&](llvm::raw_ostream &os) {
    module->print(os, flags);
    os << "\n";
    return true;
  });
  if (why.empty())
    return PCRT_OK;
  pc::errs() << "pc-import: error: " << why << "\n";
  return PCRT_RESOURCE;
}
