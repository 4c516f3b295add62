//===- Golden.cpp - The required results of a compiled program for a triple -===//
// Writes the files of a Hugging Face directory by hand, and trains the one-device program of the triple in the
// interpreter.
//===----------------------------------------------------------------------===//
#include "Golden.h"

#include "pc/IR/Parts.h"
#include "pc/Reference/Interpreter.h"

#include "mlir/IR/Builders.h"
#include "pcrt/description.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include <cmath>
#include <map>

using namespace mlir;

namespace {

using Tensors = std::map<std::string, pc::Tensor>;

LogicalResult writeFile(MLIRContext *context, StringRef directory, StringRef name, StringRef bytes) {
  SmallString<128> path(directory);
  llvm::sys::path::append(path, name);
  std::error_code error;
  llvm::raw_fd_ostream os(path, error);
  if (!error) {
    os << bytes;
    os.close();
    error = os.error();
    os.clear_error();
  }
  if (!error)
    return success();
  return emitError(UnknownLoc::get(context)) << "cannot write " << path.str() << ": " << error.message();
}

/// The bytes of a safetensors file with these tensors, as f32.
std::string safetensors(const Tensors &tensors) {
  llvm::json::Object header;
  std::string data;
  for (const auto &[name, tensor] : tensors) {
    int64_t begin = data.size();
    for (double x : tensor.data) {
      float single = static_cast<float>(x);
      data.append(reinterpret_cast<const char *>(&single), sizeof(single));
    }
    header[name] = llvm::json::Object{{"dtype", "F32"},
                                      {"shape", llvm::json::Array(tensor.shape)},
                                      {"data_offsets", llvm::json::Array{begin, static_cast<int64_t>(data.size())}}};
  }
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(std::move(header));
  text.append((8 - text.size() % 8) % 8, ' ');
  uint64_t size = text.size();
  return std::string(reinterpret_cast<const char *>(&size), 8) + text + data;
}

/// Trains a program in the interpreter: keeps parameters and states between steps, and collects the outputs.
class Trainer {
public:
  explicit Trainer(const Triple &triple) : sparse(triple.sparse) {
    uint32_t state = 12345;
    for (int64_t i = 0; i < 2 * triple.batch * triple.sequence + 7; ++i) { // the stream wraps in the third step
      state = state * 1664525u + 1013904223u;
      tokens.push_back((state >> 8) % triple.vocabulary);
    }
  }

  LogicalResult train(ModuleOp step, int64_t steps) {
    pc::Tensor losses({steps});
    for (int64_t s = 0; s < steps; ++s) {
      pc::RunOptions options;
      options.feed = [&](Operation *leaf, pc::Tensor &tensor) { feed(s, leaf, tensor); };
      auto results = pc::interpret(step, options);
      if (failed(results))
        return failure();
      for (auto &[name, value] : *results) {
        StringRef rest = name;
        if (name == "loss loss")
          losses[s] = value[0];
        else if (s == 0 && name == "logits logits")
          golden["logits"] = value;
        else if (s == 0 && rest.consume_front("gradient "))
          put(golden, "grad.", rest, value);
        else if (rest.consume_front("update "))
          updated[rest.str()] = value;
      }
    }
    golden["losses"] = losses;
    return success();
  }

  std::vector<uint16_t> tokens;
  Tensors weights, golden; ///< by Hugging Face names

  /// Returns the next tokens, or -100 for a target that does not count.
  std::vector<int16_t> targets() const {
    std::vector<int16_t> all;
    for (size_t i = 0; i < tokens.size(); ++i)
      all.push_back(sparse && i % 3 == 1 ? int16_t(-100) : static_cast<int16_t>(tokens[(i + 1) % tokens.size()]));
    return all;
  }

private:
  void feed(int64_t s, Operation *leaf, pc::Tensor &tensor) {
    if (auto parameter = dyn_cast<pc::ParameterOp>(leaf)) {
      auto &parts = partsByName[parameter.getName().str()] = pc::partsOf(parameter);
      for (const pc::ParameterPart &part : parts) {
        sources[part.name.str()] = part.source;
        pc::Tensor value = tensor.box(part.start, part.size);
        if (auto it = updated.find(part.name.str()); s > 0 && it != updated.end()) {
          value = it->second;
        } else {
          for (double &x : value.data)
            x = static_cast<float>(x); // as the file has it
          put(weights, "", part.name, value);
        }
        tensor.merge(part.start, value, replace);
      }
    } else if (auto state = dyn_cast<pc::StateOp>(leaf)) {
      tensor = pc::Tensor(tensor.shape);
      for (const pc::ParameterPart &part : partsByName[state.getParameter().str()])
        if (auto it = updated.find((state.getName() + " of " + part.name).str()); it != updated.end())
          tensor.merge(part.start, it->second, replace);
    } else if (auto input = dyn_cast<pc::InputOp>(leaf)) {
      if (input.getKind() == pc::InputKind::Hyper) {
        tensor.data = {1e-3, 0.9, 0.999, 1e-8, 0.1, 1 - std::pow(0.9, s + 1), 1 - std::pow(0.999, s + 1), 1.0};
        return;
      }
      if (input.getKind() == pc::InputKind::Random) { // seed 0, the default of a run
        for (int64_t i = 0; i < tensor.size(); i += PCRT_RANDOM_COUNT) {
          tensor[i + PCRT_RANDOM_SEED_LOW] = tensor[i + PCRT_RANDOM_SEED_HIGH] = 0;
          tensor[i + PCRT_RANDOM_STEP] = s;
        }
        return;
      }
      feedTokens(s, input, tensor);
    }
  }

  /// Fills an input with tokens, or with numbers that a run computes from them.
  void feedTokens(int64_t s, pc::InputOp input, pc::Tensor &tensor) {
    std::vector<int16_t> targets = this->targets();
    auto number = [&](const auto &of, int64_t i) { return of[(s * tensor.size() + i) % of.size()]; };
    int64_t counted = 0, length = tensor.shape.back(), start = 0;
    auto before = [&](int64_t i) { // what a decoder reads
      int64_t target = i % length ? number(targets, i - 1) : -1;
      return static_cast<double>(target < 0 ? static_cast<int64_t>(*input.getKey()) : target);
    };
    for (int64_t i = 0; i < tensor.size(); ++i)
      counted += number(targets, i) >= 0;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      int64_t at = i % length, target = number(targets, i);
      if (at == 0 || (input.getKey() && number(tokens, i - 1) == static_cast<int64_t>(*input.getKey())))
        start = at;
      tensor[i] = input.getKind() == pc::InputKind::Tokens    ? number(tokens, i)
                  : input.getKind() == pc::InputKind::Targets ? static_cast<double>(std::max<int64_t>(target, 0))
                  : input.getKind() == pc::InputKind::LossWeights
                      ? (target >= 0 ? 1.0 / static_cast<double>(counted) : 0)
                  : input.getKind() == pc::InputKind::Shifted ? before(i)
                  : input.getKind() == pc::InputKind::Starts  ? static_cast<double>(start)
                                                              : static_cast<double>(at - start);
    }
  }

  /// Puts a parameter-shaped tensor into its box of the Hugging Face tensor.
  void put(Tensors &into, StringRef prefix, StringRef parameter, const pc::Tensor &value) {
    pc::SourceAttr source = sources[parameter.str()];
    pc::Tensor &whole =
        into.try_emplace((prefix + source.getTensor()).str(), pc::Tensor(source.getShape())).first->second;
    pc::Tensor box(source.getSize());
    box.data = value.data;
    whole.shape = pc::Shape(source.boxShape());
    whole.merge(source.getStart(), box, replace);
    whole.shape = pc::Shape(source.getShape());
  }
  static void replace(double &to, double x) { to = x; }

  bool sparse;
  Tensors updated; ///< parameters and states after the last step, by our names
  std::map<std::string, pc::SourceAttr> sources;
  std::map<std::string, SmallVector<pc::ParameterPart>> partsByName;
};

} // namespace

/// Trains the one-device program, stored in the types of the triple or, if `exact`, all in f32.
static LogicalResult train(MLIRContext *context, const Triple &triple, bool exact, Trainer &trainer) {
  OwningOpRef<ModuleOp> module = triple.model(context);
  pc::CompileOptions options = triple.options;
  options.plan = {{}, {}, triple.options.plan.microbatches};
  if (auto precision = triple.options.plan.find<pc::MixedPrecisionTactic>(); precision && !exact)
    options.plan.tactics.push_back(*precision);
  if (!module || pc::runPhase(*module, pc::Phase::Step, options))
    return failure();
  return trainer.train(*module, options.train ? 3 : 1);
}

LogicalResult writeGolden(MLIRContext *context, const Triple &triple, StringRef directory) {
  Trainer trainer(triple), exact(triple);
  if (failed(train(context, triple, false, trainer)) || failed(train(context, triple, true, exact)))
    return failure();
  std::string stream(reinterpret_cast<const char *>(trainer.tokens.data()), 2 * trainer.tokens.size());
  std::vector<int16_t> targets = trainer.targets();
  StringRef targetStream(reinterpret_cast<const char *>(targets.data()), 2 * targets.size());
  std::string flags = triple.documents ? "--documents=" + std::to_string(*triple.documents) : "";
  if (triple.capacity)
    flags += " --expert-capacity=" + std::to_string(*triple.capacity);
  return success(succeeded(writeFile(context, directory, "config.json", triple.config)) &&
                 succeeded(writeFile(context, directory, "plan.mlir", triple.options.plan.text(context))) &&
                 succeeded(writeFile(context, directory, "tokens.bin", stream)) &&
                 succeeded(writeFile(context, directory, "targets.bin", targetStream)) &&
                 succeeded(writeFile(context, directory, "import-flags", flags)) &&
                 succeeded(writeFile(context, directory, "model.safetensors", safetensors(trainer.weights))) &&
                 succeeded(writeFile(context, directory, "golden.safetensors", safetensors(trainer.golden))) &&
                 succeeded(writeFile(context, directory, "exact.safetensors", safetensors(exact.golden))));
}
