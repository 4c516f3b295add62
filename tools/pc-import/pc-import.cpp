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
static cl::opt<int64_t> batch("batch", cl::desc("Number of sequences in the global batch (default 8)"),
                              cl::value_desc("N"), cl::init(8), cl::cat(category));
static cl::opt<double> dropout("dropout", cl::desc("Dropout probability, which replaces those in config.json"),
                               cl::value_desc("P"), cl::cat(category));
static cl::opt<int64_t> documents("documents",
                                  cl::desc("Token that ends a document; attention and positions restart after it"),
                                  cl::value_desc("EOS"), cl::cat(category));
static cl::opt<int64_t>
    capacity("expert-capacity",
             cl::desc("Number of tokens per sequence that each expert accepts, in sequence order (default: all)"),
             cl::value_desc("N"), cl::cat(category));
static cl::opt<double> labelSmoothing("label-smoothing",
                                      cl::desc("Share of the loss that is spread evenly over all classes (default 0)"),
                                      cl::value_desc("E"), cl::cat(category));
static cl::opt<double>
    zLoss("z-loss", cl::desc("Add Z times the squared logsumexp of the logits to the loss of each target (default 0)"),
          cl::value_desc("Z"), cl::cat(category));
static cl::opt<int64_t>
    sequence("seq", cl::desc("Number of tokens per sequence (default: as many as the model can read, at most 1024)"),
             cl::value_desc("N"), cl::cat(category));
static cl::opt<int64_t>
    targets("target-seq",
            cl::desc("For models with an encoder, number of targets per sequence (default: as many as tokens)"),
            cl::value_desc("N"), cl::cat(category));

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-import");
  cl::HideUnrelatedOptions(category);
  std::string message;
  llvm::raw_string_ostream errors(message);
  if (!cl::ParseCommandLineOptions(
          argc, argv,
          "pc-import: converts a Hugging Face directory to a model program\n\nArchitectures: gpt2, llama, mistral, "
          "qwen2, qwen3, mixtral, qwen3_moe, phi3, olmo2, gpt_neox (Pythia),\ngemma, gemma2, gemma3_text, opt, "
          "gpt_neo, bloom, bert, t5. A config.json alone is enough; then the compiled program draws random weights "
          "when it starts.\nSafetensors files in the directory are checked and stay in place; weights in other formats "
          "are an error.\n",
          &errors)) {
    pc::errs() << message;
    return PCRT_USAGE;
  }
  if (failed(pc::checkOutputs("pc-import", pcrt::filesOfModel("the model", directory), {{"-o", output}})))
    return PCRT_USAGE;
  mlir::MLIRContext context;
  llvm::SourceMgr sources;
  pc::ToolDiagnostics diagnostics("pc-import", sources, &context);
  pcrt_status status = PCRT_OK;
  pc::ImportOptions options{batch};
  if (sequence.getNumOccurrences())
    options.sequence = sequence;
  if (dropout.getNumOccurrences())
    options.dropout = dropout;
  options.labelSmoothing = labelSmoothing;
  options.zLoss = zLoss;
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
          << "this directory has no weights; a run draws random ones unless it is given --init or --load";
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
