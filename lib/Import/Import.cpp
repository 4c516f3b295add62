//===- Import.cpp - Hugging Face directory -> model program ---------------------------===//
// Checks the options, reads config.json, builds the model, and compares its parameters with the tensors of the
// directory. A directory without weights is legal; the run then draws them. An exit status other than PCRT_OK comes
// with an error at the file that caused it.
//===-----------------------------------------------------------------------------===//
#include "pc/Import/Import.h"

#include "Model.h"
#include "Safetensors.h"
#include "pc/IR/Parts.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/Source.h"
#include "pcrt/weights.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace pc;

static Location fileLocation(MLIRContext *context, StringRef path) { return FileLineColLoc::get(context, path, 0, 0); }

/// Returns true if `name` is a tensor that checkpoints have in addition to the parameters, and that a step does not
/// need.
static bool isHarmless(StringRef name, const ModelConfig &config) {
  // Older checkpoints store the causal mask.
  for (StringRef mask : {".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias"})
    if (name.ends_with(mask))
      return true;
  const Family &family = *config.family;
  if (llvm::any_of(family.otherTensors, [&](const char *prefix) { return name.starts_with(prefix); }))
    return true;
  return name.ends_with("rotary_emb.inv_freq");
}

using Entry = TensorIndex::value_type;

/// The tensor of exactly that name, or null.
static const Entry *findExactly(const TensorIndex &index, StringRef name) {
  auto it = index.find(name);
  return it == index.end() ? nullptr : &*it;
}

/// Checks that every parameter's tensor exists, with the expected shape and a floating-point dtype, and that no other
/// tensor does.
static LogicalResult checkWeights(ModuleOp module, const ModelConfig &config, const TensorIndex &index,
                                  StringRef directory) {
  llvm::StringSet<> expected;
  auto find = [&](StringRef name) { return findExactly(index, name); };
  auto check = [&](SourceAttr source) -> WalkResult {
    StringRef name = source.getTensor();
    const Entry *it = pcrt::findModelTensor(name.str(), find);
    if (!it) {
      std::vector<std::string> names(index.keys().begin(), index.keys().end());
      llvm::sort(names);
      return emitError(fileLocation(module.getContext(), directory))
             << "tensor '" << name << "' is missing" << escaped(pcrt::whyMissing(name.str(), names));
    }
    expected.insert(it->first());
    if (ArrayRef(it->second.shape) != source.getShape()) {
      InFlightDiagnostic error = emitError(fileLocation(module.getContext(), directory));
      error << "tensor '" << name << "' has shape [";
      llvm::interleaveComma(it->second.shape, error, [&](int64_t n) { error << n; });
      error << "], but config.json needs [";
      llvm::interleaveComma(source.getShape(), error, [&](int64_t n) { error << n; });
      error << "]";
      return WalkResult::interrupt();
    }
    if (!StringRef(it->second.dtype).contains('F') || StringRef(it->second.dtype).starts_with("F8"))
      return emitError(fileLocation(module.getContext(), directory))
             << "tensor '" << name << "' has dtype " << it->second.dtype << "; F64, F32, F16 and BF16 are supported";
    return WalkResult::advance();
  };
  WalkResult result = module.walk([&](ParameterOp parameter) -> WalkResult {
    for (const ParameterPart &part : partsOf(parameter))
      if (check(part.source).wasInterrupted())
        return WalkResult::interrupt();
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  auto equal = [](const Entry &a, const Entry &b) { return areEqual(a.second, b.second); };
  if (std::string why = pcrt::untiedTensors(config.ties, find, equal); !why.empty())
    return emitError(fileLocation(module.getContext(), directory)) << why;
  // A tensor without a parameter usually means that the architecture is different.
  SmallVector<StringRef> unexpected;
  for (const auto &entry : index)
    if (StringRef name = entry.first(); !expected.contains(name) && !isHarmless(name, config) &&
                                        llvm::none_of(config.ties, [&](auto &tie) { return tie.first == name; }))
      unexpected.push_back(name);
  if (unexpected.empty())
    return success();
  llvm::sort(unexpected);
  return emitError(fileLocation(module.getContext(), directory))
         << "tensor '" << escaped(unexpected.front()) << "' does not belong to this architecture (" << unexpected.size()
         << " such tensors in all)";
}

/// Options are checked before the file is read. Weights are compared with the parameters of the model that was built.
OwningOpRef<ModuleOp> pc::importModel(MLIRContext *context, StringRef directory, const ImportOptions &options,
                                      pcrt_status &status) {
  status = PCRT_BAD_INPUT;
  SmallString<256> path(directory);
  llvm::sys::path::append(path, "config.json");
  auto error = [&]() { return emitError(fileLocation(context, path)); };
  auto warning = [&]() { return emitWarning(fileLocation(context, path)); };
  constexpr int64_t limit = int64_t(1) << 31;
  for (int64_t length : {options.sequence.value_or(defaultSequence), options.targets.value_or(1)})
    if (options.batch < 1 || length < 1 || options.batch >= limit / length) {
      error() << "--batch and --seq must be positive, and their product below 2^31 tokens; got " << options.batch
              << " x " << length;
      return {};
    }
  if (options.dropout && !(*options.dropout >= 0 && *options.dropout < 1)) {
    error() << "--dropout must be at least 0 and below 1, got " << *options.dropout;
    return {};
  }
  if (!(options.labelSmoothing >= 0 && options.labelSmoothing < 1)) {
    error() << "--label-smoothing must be at least 0 and below 1, got " << options.labelSmoothing;
    return {};
  }
  if (!(options.zLoss >= 0 && std::isfinite(options.zLoss))) {
    error() << "--z-loss must be a number of at least 0, got " << options.zLoss;
    return {};
  }
  std::string why;
  std::unique_ptr<llvm::MemoryBuffer> buffer = readFile(path, why);
  if (!buffer) {
    error() << "cannot be read: " << pcrt::whyNotOpened(path.str().str(), why);
    return {};
  }
  if (std::string cause = pcrt::whyNoContents(buffer->getBuffer()); !cause.empty()) {
    error() << "the file " << cause;
    return {};
  }
  FailureOr<ModelConfig> config = parseConfig(buffer->getBuffer(), options, error, warning);
  if (failed(config))
    return {};
  OwningOpRef<ModuleOp> module = buildModel(context, *config, options);
  status = PCRT_BAD_DATA;
  FailureOr<TensorIndex> index =
      readTensorIndex(directory, [&](StringRef file) { return emitError(fileLocation(context, file)); });
  if (failed(index))
    return {};
  if (std::string other = index->empty() ? otherWeights(directory) : ""; !other.empty()) {
    status = PCRT_BAD_INPUT;
    path = directory;
    llvm::sys::path::append(path, other);
    emitError(fileLocation(context, path))
        << "contains weights in an unsupported format; only model.safetensors, or shards listed in "
           "model.safetensors.index.json, are read. Convert the weights with transformers (from_pretrained, then "
           "save_pretrained), or use a directory with only config.json to draw random weights";
    return {};
  }
  // Weights are checked now, so that a missing tensor is not found only at run time.
  if (!index->empty()) {
    if (failed(checkWeights(*module, *config, *index, directory)))
      return {};
    SmallString<256> weights;
    if (!llvm::sys::fs::real_path(directory, weights))
      cast<ProgramOp>(module->getBody()->front()).setWeights(weights.str());
  }
  status = PCRT_OK;
  return module;
}
