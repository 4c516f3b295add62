//===- golden-interpret.cpp - A program of any phase, interpreted, compared with PyTorch -===//
// Feeds a golden model's weights and tokens to the reference interpreter, takes STEPS training steps in double
// precision, and compares with golden.safetensors: logits, losses and gradients, and the parameters after 20 steps. So
// an error in the import, in a gradient rule or in the plan can be told from an error in generated code.
//===----------------------------------------------------------------------===//
#include "../../tools/pc-compare/Tensors.h"
#include "pc/Driver/Registration.h"
#include "pc/IR/Parts.h"
#include "pc/Reference/Interpreter.h"

#include "mlir/Parser/Parser.h"
#include "pcrt/description.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace {

constexpr double Seed = 1, LearningRate = 1e-3, Beta1 = 0.9, Beta2 = 0.999, Epsilon = 1e-8, WeightDecay = 0.1,
                 Clip = 1.0;

/// Returns true if the tensor is only the bias of keys that are not rotated. Its gradient is exactly zero
/// (key_biases.py).
bool isKeyBias(StringRef name) {
  return (name.contains(".decoder.") && name.ends_with("k_proj.bias")) || name.ends_with(".self.key.bias");
}

/// Returns the part of a Hugging Face tensor that belongs to a parameter, as an f64 tensor of the parameter's shape
/// without padding.
pc::Tensor boxOf(const FileTensor &whole, pc::SourceAttr source, ArrayRef<int64_t> shape) {
  pc::Tensor all(source.boxShape());
  llvm::copy(whole.values, all.data.begin());
  pc::Tensor box = all.box(source.getStart(), source.getSize());
  pc::Tensor part(shape);
  part.data = box.data;
  return part;
}

/// A golden model: its weights, data and expected results, and the state after the last step.
struct Golden {
  std::map<std::string, FileTensor> weights, want;
  std::string tokens, targets; ///< raw uint16; without targets they are the next tokens
  int64_t step = 0;
  llvm::StringMap<pc::Tensor> updated; ///< parameters and states after the last step, without padding
  llvm::StringMap<SmallVector<pc::ParameterPart>> partsByName; ///< of every parameter of the program
  llvm::StringMap<pc::SourceAttr> sources;                     ///< of every part

  /// Number `i` of this step's batch in `file`, where each step has as many numbers as `batch` has elements.
  int32_t number(StringRef file, const pc::Tensor &batch, int64_t i) const {
    int64_t at = (step * batch.size() + i) % static_cast<int64_t>(file.size() / 2);
    return uint8_t(file[2 * at]) | uint8_t(file[2 * at + 1]) << 8;
  }
  /// The target of token i; -100 does not count.
  int32_t target(const pc::Tensor &batch, int64_t i) const {
    constexpr int32_t none = uint16_t(-100);
    int32_t id = targets.empty() ? number(tokens, batch, i + 1) : number(targets, batch, i);
    return !targets.empty() && id == none ? -100 : id;
  }

  /// Writes what a leaf reads in this step; padding stays zero.
  void feed(Operation *leaf, pc::Tensor &tensor) {
    auto place = [&](const pc::ParameterPart &part, const pc::Tensor &value) {
      tensor.merge(part.start, value, [](double &whole, double x) { whole = x; });
    };
    if (auto parameter = dyn_cast<pc::ParameterOp>(leaf)) {
      llvm::fill(tensor.data, 0.0);
      auto &parts = partsByName[parameter.getName()] = pc::partsOf(parameter);
      for (const pc::ParameterPart &part : parts) {
        sources[part.name] = part.source;
        if (auto found = updated.find(part.name); found != updated.end()) {
          place(part, found->second);
          continue;
        }
        auto weight = weights.find(part.source.getTensor().str());
        if (weight == weights.end())
          die(Unreadable, "no weight " + part.source.getTensor().str());
        place(part, boxOf(weight->second, part.source, part.size));
      }
    } else if (auto state = dyn_cast<pc::StateOp>(leaf)) {
      llvm::fill(tensor.data, 0.0);
      for (const pc::ParameterPart &part : partsByName[state.getParameter()])
        if (auto found = updated.find((state.getName() + " of " + part.name).str()); found != updated.end())
          place(part, found->second);
    } else if (auto input = dyn_cast<pc::InputOp>(leaf)) {
      switch (input.getKind()) {
      case pc::InputKind::Hyper:
        tensor.data = {LearningRate,
                       Beta1,
                       Beta2,
                       Epsilon,
                       WeightDecay,
                       1 - std::pow(Beta1, step + 1),
                       1 - std::pow(Beta2, step + 1),
                       Clip};
        break;
      case pc::InputKind::Random:
        for (int64_t i = 0; i < tensor.size(); i += PCRT_RANDOM_COUNT) {
          tensor[i + PCRT_RANDOM_SEED_LOW] = Seed, tensor[i + PCRT_RANDOM_SEED_HIGH] = 0;
          tensor[i + PCRT_RANDOM_STEP] = step;
        }
        break;
      case pc::InputKind::Tokens:
        for (int64_t i = 0; i < tensor.size(); ++i)
          tensor[i] = number(tokens, tensor, i);
        break;
      case pc::InputKind::Targets:
        for (int64_t i = 0; i < tensor.size(); ++i)
          tensor[i] = std::max(target(tensor, i), 0);
        break;
      case pc::InputKind::Shifted:
        for (int64_t i = 0; i < tensor.size(); ++i) {
          int32_t before = i % tensor.shape.back() ? target(tensor, i - 1) : -100;
          tensor[i] = before < 0 ? static_cast<double>(*input.getKey()) : before;
        }
        break;
      case pc::InputKind::Starts:
      case pc::InputKind::Positions: {
        int64_t length = tensor.shape.back(), start = 0;
        for (int64_t i = 0; i < tensor.size(); ++i) {
          int64_t at = i % length;
          if (at == 0 || number(tokens, tensor, i - 1) == static_cast<int64_t>(*input.getKey()))
            start = at;
          tensor[i] = static_cast<double>(input.getKind() == pc::InputKind::Starts ? start : at - start);
        }
        break;
      }
      case pc::InputKind::LossWeights:
        int64_t counted = 0;
        for (int64_t i = 0; i < tensor.size(); ++i)
          counted += target(tensor, i) >= 0;
        for (int64_t i = 0; i < tensor.size(); ++i)
          tensor[i] = target(tensor, i) >= 0 ? 1 / static_cast<double>(counted) : 0;
      }
    }
  }

  /// The largest gradient in the Hugging Face tensor of which parameter `name` is a part. The tensor is larger because
  /// the gradient of GPT-2's key bias is zero.
  double gradientScale(StringRef name) {
    double largest = 0;
    for (float x : want["grad." + sources.lookup(name).getTensor().str()].values)
      largest = std::max(largest, std::fabs(double(x)));
    return largest;
  }

  /// The wanted tensor that belongs to parameter `name`, in its shape; `group` is "grad." or "after.".
  pc::Tensor wanted(const std::string &group, StringRef name, ArrayRef<int64_t> shape) {
    pc::SourceAttr source = sources.lookup(name);
    auto found = want.find(group + source.getTensor().str());
    if (found == want.end())
      die(Different, "no golden tensor " + group + source.getTensor().str());
    return boxOf(found->second, source, shape);
  }
};

/// The largest difference relative to the largest element: max|want - got| / max(max|want|, scale).
double difference(const pc::Tensor &want, const pc::Tensor &got, double scale = 0) {
  if (want.size() != got.size())
    return INFINITY;
  double largest = scale, worst = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    worst = std::max(worst, std::isfinite(got[i]) ? std::abs(want[i] - got[i]) : INFINITY);
  }
  return worst == 0 ? 0 : worst / largest;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 3 || argc > 5)
    die(Usage, "usage: golden-interpret PROGRAM.mlir GOLDEN-DIR [STEPS [TOLERANCE]]\n"
               "       golden-interpret PROGRAM.mlir GOLDEN-DIR figures      (loss and norm of the first step)");
  bool shows = argc == 4 && StringRef(argv[3]) == "figures";
  std::string directory = argv[2];
  int64_t steps = argc > 3 && !shows ? atoi(argv[3]) : 1;
  const double allowed = argc > 4 ? atof(argv[4]) : 1e-6;
  DialectRegistry registry;
  pc::registerDialects(registry);
  MLIRContext context(registry);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(argv[1], &context);
  if (!module)
    return Unreadable;

  Golden golden;
  golden.weights = readTensors(directory + "/model.safetensors");
  if (!shows)
    golden.want = readTensors(directory + "/golden.safetensors");
  golden.tokens = readFile(directory + "/tokens.bin");
  if (llvm::sys::fs::exists(directory + "/targets.bin"))
    golden.targets = readFile(directory + "/targets.bin");
  pc::RunOptions options;
  options.feed = [&](Operation *leaf, pc::Tensor &tensor) { golden.feed(leaf, tensor); };

  int bad = 0, compared = 0;
  std::map<std::string, double> worst; // by kind
  auto check = [&](StringRef kind, const std::string &name, const pc::Tensor &want, const pc::Tensor &got,
                   double tolerance, double scale = 0) {
    double relative = difference(want, got, scale);
    ++compared;
    worst[kind.str()] = std::max(worst[kind.str()], relative);
    if (!(relative <= tolerance)) {
      llvm::outs() << llvm::formatv("{0} differs by {1:e2}\n", name, relative);
      ++bad;
    }
  };
  for (; golden.step < steps; ++golden.step) {
    FailureOr<pc::Results> results = pc::interpret(*module, options);
    if (failed(results))
      return Different;
    if (shows) {
      for (auto &[name, value] : *results)
        if (StringRef(name).starts_with("loss ") || StringRef(name).starts_with("grad_norm "))
          llvm::outs() << StringRef(name).split(' ').first << llvm::formatv(" {0:e9}\n", value[0]);
      return 0;
    }
    for (auto &[name, value] : *results) {
      auto [kind, rest] = StringRef(name).split(' ');
      if (kind == "loss") {
        pc::Tensor want;
        want[0] = golden.want["losses"].values[golden.step];
        check(kind, "loss of step " + std::to_string(golden.step), want, value, allowed);
      } else if (kind == "update") {
        golden.updated[rest] = value;
      } else if (golden.step == 0 && kind == "logits") {
        pc::Tensor want(golden.want["logits"].shape);
        llvm::copy(golden.want["logits"].values, want.data.begin());
        check(kind, name, want, value, allowed);
      } else if (golden.step == 0 && kind == "gradient") {
        if (!isKeyBias(rest))
          check(kind, name, golden.wanted("grad.", rest, value.shape), value, allowed, golden.gradientScale(rest));
      }
    }
  }
  if (steps == 20)
    for (auto &entry : golden.sources) {
      // Compares the parameters after 20 steps, except those for which Adam amplifies rounding.
      StringRef name = entry.first();
      if (name.ends_with(".bias:k") || isKeyBias(name))
        continue;
      auto found = golden.updated.find(name);
      if (found == golden.updated.end()) {
        if (!golden.want.count("grad." + entry.second.getTensor().str()))
          continue; // not trained there either
        llvm::outs() << name << " was not updated\n";
        ++bad;
        continue;
      }
      check("after", "after 20 steps, " + name.str(), golden.wanted("after.", name, found->second.shape), found->second,
            1e-5);
    }
  llvm::outs() << compared << " tensors";
  for (auto &[kind, relative] : worst)
    llvm::outs() << llvm::formatv(", {0} {1:e1}", kind, relative);
  llvm::outs() << "\n";
  return bad || compared < 3 ? Different : Equal;
}
