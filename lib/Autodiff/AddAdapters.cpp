//===- AddAdapters.cpp - Adds LoRA adapters to a model --------------------------------------===//
// Input: a model program, and which weights get adapters of which rank. Result: each product W x with such a weight
// becomes W x + alpha / rank * B (A x), and only A and B are trained. Reference: E. Hu et al., "LoRA: low-rank
// adaptation of large language models", 2021; names, shapes and initial values are those of Hugging Face's PEFT.
//===-----------------------------------------------------------------------------===//
#define GEN_PASS_DEF_ADDADAPTERS
#include "pc/Autodiff/Passes.h"

#include "pc/IR/NameGlobs.h"
#include "pcrt/description.h"
#include "pcrt/weights.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include <cmath>
#include <map>
#include <numeric>

using namespace mlir;
using namespace pc;

namespace {

/// The settings of --lora.
struct Lora {
  int64_t rank = 0;
  double alpha = 0, dropout = 0;
  NameGlobs targets;
};

/// The weight of products as a matrix of outputs times inputs, and the part of its tensor that the parameter holds.
struct Matrix {
  std::string module; ///< the name of the tensor without ".weight"
  bool inputsFirst = false;
  size_t outputs = 0;                     ///< dims of the parameter that are outputs; the others are inputs
  int64_t allOutputs = 0, allInputs = 0;  ///< sizes of the whole tensor
  SmallVector<int64_t> view, start, size; ///< the parameter's outputs, as a box of the tensor's outputs
};

/// The names of the factors in a product of a weight and `x`.
struct Product {
  EinsumOp op;
  Value x;
  FactorRule rule;
  SmallVector<int> ofX, ofWeight, ofResult;
  bool isMatrixProduct = false, inputsFirst = false;
  size_t outputs = 0; ///< dims of the weight

  Product(EinsumOp op, Value weight) : op(op), rule(op.getFactorRule()) {
    if (op.getInputs().size() != 2 || op.getInputs()[0] == op.getInputs()[1])
      return;
    int side = op.getInputs()[1] == weight;
    x = op.getInputs()[1 - side];
    ofX.assign(rule.operands[1 - side].begin(), rule.operands[1 - side].end());
    ofWeight.assign(rule.operands[side].begin(), rule.operands[side].end());
    ofResult.assign(rule.results[0].begin(), rule.results[0].end());
    if (ofWeight.empty())
      return;
    inputsFirst = isInput(ofWeight.front());
    int changes = 0;
    for (auto [i, factor] : llvm::enumerate(ofWeight)) {
      if (llvm::is_contained(ofX, factor) == llvm::is_contained(ofResult, factor))
        return;
      outputs += !isInput(factor);
      changes += i && isInput(factor) != isInput(ofWeight[i - 1]);
    }
    bool onlyTheirs = llvm::all_of(ofX, [&](int f) { return isInput(f) || llvm::is_contained(ofResult, f); });
    isMatrixProduct = changes == 1 && onlyTheirs && ofX.size() + ofWeight.size() == ofResult.size() + 2 * numInputs();
  }

  bool isInput(int factor) const { return !llvm::is_contained(ofResult, factor); }
  size_t numInputs() const { return ofWeight.size() - outputs; }
  /// The names of the `factors` that are inputs, or of those that are not, followed by `last`.
  std::string names(ArrayRef<int> factors, bool inputs, StringRef last = "") const {
    SmallVector<StringRef> all;
    for (int factor : factors)
      if (isInput(factor) == inputs)
        all.push_back(rule.factors[factor].name);
    if (!last.empty())
      all.push_back(last);
    return llvm::join(all, " ");
  }
  std::string names(ArrayRef<int> factors) const {
    return llvm::join(llvm::map_range(factors, [&](int f) { return rule.factors[f].name; }), " ");
  }
};

struct AddAdapters : pc::impl::AddAdaptersBase<AddAdapters> {
  using AddAdaptersBase::AddAdaptersBase;

  /// Refuses a model that already has adapters. Otherwise freezes all parameters of the model, and adds an adapter to
  /// each product of a chosen matrix.
  void runOnOperation() override {
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    auto programs = getOperation().getOps<ProgramOp>();
    if (!model || programs.empty()) {
      getOperation().emitError() << "--lora needs a module with a function @model and with pc.program";
      return signalPassFailure();
    }
    WalkResult found = model.walk([](ParameterOp parameter) {
      StringRef tensor = partsOf(parameter)[0].source.getTensor();
      return tensor.starts_with(pcrt::adapterPrefix) ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (found.wasInterrupted()) {
      getOperation().emitError() << "--lora: this model has adapters already";
      return signalPassFailure();
    }
    Lora settings;
    matrices.clear(); // the pass may run on several modules
    leaves.clear();
    low.clear();
    drops = 0;
    if (failed(read(settings)) || failed(findMatrices(model, settings)))
      return signalPassFailure();
    // Each dropout has a random input with a key of its own. New keys follow the largest existing one.
    model.walk([&](InputOp input) {
      if (input.getKind() == InputKind::Random)
        drops = std::max(drops, static_cast<int64_t>(*input.getKey()) + 1);
    });
    model.walk([&](ParameterOp parameter) {
      parameter.setFrozen(true);
      parameter.removeGroupAttr();
    });
    // The adapter's ops are inserted while the loop runs, so it advances to the next op before it changes this one.
    for (EinsumOp op : llvm::make_early_inc_range(model.getOps<EinsumOp>()))
      for (Value input : op.getInputs())
        if (auto parameter = input.getDefiningOp<ParameterOp>(); parameter && matrices.contains(parameter)) {
          adapt(Product(op, input), parameter, settings);
          break;
        }
    numberParts(model);
    describe(*programs.begin(), settings);
  }

private:
  LogicalResult read(Lora &settings);
  LogicalResult findMatrices(func::FuncOp model, Lora &settings);
  std::string whyNone(ParameterOp parameter, Matrix &matrix);
  void adapt(const Product &product, ParameterOp weight, const Lora &settings);
  Value leaf(OpBuilder &builder, const Twine &name, ArrayRef<Attribute> dims, ArrayRef<int64_t> shape, InitAttr init,
             SourceAttr source);
  void describe(ProgramOp program, const Lora &settings);

  /// Numbers the parts of all parameters again, because adapters were added among them.
  static void numberParts(func::FuncOp model) {
    int64_t key = 0;
    model.walk([&](ParameterOp parameter) {
      SmallVector<Attribute> parts;
      for (const ParameterPart &part : partsOf(parameter))
        parts.push_back(PartAttr::get(parameter.getContext(), part.name, key++,
                                      parameter.getParts() ? part.size[*parameter.getAlong()] : 0, part.source));
      if (parameter.getParts())
        parameter.setPartsAttr(ArrayAttr::get(parameter.getContext(), parts));
    });
  }

  llvm::MapVector<Operation *, Matrix> matrices;       ///< by parameter
  std::map<std::string, Value> leaves;                 ///< parameters of adapters, by name
  std::map<std::pair<std::string, void *>, Value> low; ///< A x, by module and x
  int64_t drops = 0;                                   ///< dropouts in the model
};

/// The name of a parameter's tensor without ".weight", which is PEFT's name for its module.
std::string moduleOf(const ParameterPart &part) {
  StringRef name = part.source.getTensor();
  name.consume_back(".weight");
  return name.str();
}

} // namespace

/// Reads the value of --lora. `given` is the name of the setting in the current word; a name may occur only once.
LogicalResult AddAdapters::read(Lora &settings) {
  auto refuse = [&](const Twine &why) {
    return getOperation().emitError() << "--lora=" << lora << ": " << why
                                      << "; expected rank=N,alpha=X,targets=NAME|NAME and maybe dropout=P";
  };
  SmallVector<StringRef> words;
  StringRef(lora).split(words, ',');
  llvm::StringSet<> seen;
  for (StringRef word : words) {
    StringRef value = word, given;
    auto isFor = [&](StringRef name) {
      bool isIt = value.consume_front((name + "=").str());
      given = isIt ? name : given;
      return isIt;
    };
    std::string why;
    if (isFor("rank")) {
      if (value.getAsInteger(10, settings.rank) || settings.rank < 1)
        why = "needs a whole number of at least 1";
    } else if (isFor("alpha")) {
      if (value.getAsDouble(settings.alpha) || !(settings.alpha > 0) || std::isinf(settings.alpha))
        why = "needs a positive number";
    } else if (isFor("dropout")) {
      if (value.getAsDouble(settings.dropout) || !(settings.dropout >= 0 && settings.dropout < 1))
        why = "needs a number of at least 0 and below 1";
    } else if (isFor("targets")) {
      FailureOr<NameGlobs> globs = NameGlobs::parse(value, why);
      if (succeeded(globs))
        settings.targets = std::move(*globs);
    } else {
      why = "is not a setting";
    }
    if (!why.empty())
      return refuse("'" + word + "' " + why);
    if (!seen.insert(given).second)
      return refuse("'" + given + "' occurs twice");
  }
  for (StringRef name : {"rank", "alpha", "targets"})
    if (!seen.contains(name))
      return refuse("'" + name + "' is missing");
  return success();
}

/// Finds the weights that are targets. Fails with a located error if one cannot have an adapter.
LogicalResult AddAdapters::findMatrices(func::FuncOp model, Lora &settings) {
  SmallVector<std::string> others; // last parts of names of weights that may have adapters
  WalkResult walked = model.walk([&](ParameterOp parameter) -> WalkResult {
    bool isTarget = llvm::count_if(partsOf(parameter),
                                   [&](const ParameterPart &part) { return settings.targets.fits(moduleOf(part)); });
    Matrix matrix;
    std::string why = whyNone(parameter, matrix);
    StringRef last = StringRef(matrix.module).substr(matrix.module.rfind('.') + 1);
    if (why.empty() && !llvm::is_contained(others, last))
      others.push_back(last.str());
    if (isTarget && !why.empty())
      return parameter.emitError() << "--lora: the targets '" << settings.targets.text() << "' include '"
                                   << parameter.getName() << "', which cannot have an adapter: " << why;
    if (isTarget)
      matrices[parameter] = std::move(matrix);
    return success();
  });
  if (walked.wasInterrupted())
    return failure();
  if (StringRef unused = settings.targets.unused(); !unused.empty())
    return getOperation().emitError() << "--lora: the target '" << unused
                                      << "' fits no weight; products of the model have " << llvm::join(others, ", ");
  return success();
}

/// Sets `matrix` to the parameter's form. If it cannot have an adapter, returns the reason.
std::string AddAdapters::whyNone(ParameterOp parameter, Matrix &matrix) {
  ParameterPart part = partsOf(parameter)[0];
  SourceAttr source = part.source;
  bool ofExperts =
      parameter.getParts() || llvm::is_contained(parameter.getDims().getAsValueRange<StringAttr>(), "experts");
  if (ofExperts)
    return "it is one of experts, or their router";
  if (!source.getTensor().ends_with(".weight"))
    return "it is not named as the weight of a module";
  if (source.getShape().size() != 2)
    return "it is not the matrix of a product";
  for (Operation *user : parameter->getUsers()) {
    if (isa<EmbeddingOp>(user))
      return "an embedding reads it as a table";
    auto op = dyn_cast<EinsumOp>(user);
    std::optional<Product> product;
    if (op)
      product.emplace(op, parameter.getValue());
    if (!product || !product->isMatrixProduct ||
        (matrix.outputs && (matrix.outputs != product->outputs || matrix.inputsFirst != product->inputsFirst)))
      return "it is not the matrix of a product";
    matrix.outputs = product->outputs;
    matrix.inputsFirst = product->inputsFirst;
  }
  if (!matrix.outputs)
    return "no product reads it";
  // The box of the tensor: its first dims are those of the tensor's first dim.
  ArrayRef<int64_t> view = source.getView().empty() ? source.getShape() : source.getView(), start = source.getStart(),
                    size = source.getSize();
  size_t cut = 0;
  for (int64_t product = 1; cut < view.size() && product < source.getShape()[0]; ++cut)
    product *= view[cut];
  auto elements = [](ArrayRef<int64_t> sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t(1), std::multiplies<>());
  };
  // An adapter belongs to a whole module, so the parameter must have all inputs of its tensor. It may have only some of
  // the outputs, as q has in a tensor of q, k and v; `view`, `start` and `size` describe them.
  size_t inputs = part.size.size() - matrix.outputs;
  ArrayRef<int64_t> own = part.size;
  bool first = matrix.inputsFirst;
  auto ofInputs = [&](ArrayRef<int64_t> all) { return first ? all.take_front(cut) : all.drop_front(cut); };
  auto ofOutputs = [&](ArrayRef<int64_t> all) { return first ? all.drop_front(cut) : all.take_front(cut); };
  ArrayRef<int64_t> ownInputs = first ? own.take_front(inputs) : own.drop_front(matrix.outputs);
  matrix.module = moduleOf(part);
  matrix.allInputs = source.getShape()[first ? 0 : 1];
  matrix.allOutputs = source.getShape()[first ? 1 : 0];
  if (elements(view.take_front(cut)) != source.getShape()[0] || ofInputs(size) != ofInputs(view) ||
      elements(ownInputs) != matrix.allInputs)
    return "it holds only some inputs of '" + source.getTensor().str() + "'";
  matrix.view.assign(ofOutputs(view).begin(), ofOutputs(view).end());
  matrix.start.assign(ofOutputs(start).begin(), ofOutputs(start).end());
  matrix.size.assign(ofOutputs(size).begin(), ofOutputs(size).end());
  return "";
}

/// The parameter of an adapter, which is created at its first request.
Value AddAdapters::leaf(OpBuilder &builder, const Twine &name, ArrayRef<Attribute> dims, ArrayRef<int64_t> shape,
                        InitAttr init, SourceAttr source) {
  Value &value = leaves[name.str()];
  if (!value) {
    auto full = builder.getStringAttr(name);
    value = ParameterOp::create(builder, NameLoc::get(full), RankedTensorType::get(shape, builder.getF32Type()), full,
                                builder.getArrayAttr(dims), init, source, nullptr, nullptr, nullptr, nullptr, nullptr,
                                nullptr, nullptr, nullptr);
  }
  return value;
}

/// Adds alpha / rank * B (A x) to a product.
void AddAdapters::adapt(const Product &product, ParameterOp weight, const Lora &settings) {
  const Matrix &matrix = matrices[weight];
  EinsumOp op = product.op;
  OpBuilder builder(op);
  MLIRContext *context = builder.getContext();
  Location loc = op.getLoc();
  auto type = cast<RankedTensorType>(op.getResult().getType());
  std::string letter = product.rule.find("r") < 0 ? "r" : "lora";

  // Adds the leaves. A has the dims of the weight's inputs, and B has the dims of its outputs.
  SmallVector<Attribute> inDims{builder.getStringAttr("lora_rank")}, outDims;
  SmallVector<int64_t> inShape{settings.rank}, outShape;
  for (auto [factor, dim, size] : llvm::zip_equal(product.ofWeight, weight.getDims(), partsOf(weight)[0].size)) {
    (product.isInput(factor) ? inDims : outDims).push_back(dim);
    (product.isInput(factor) ? inShape : outShape).push_back(size);
  }
  outDims.push_back(inDims.front());
  outShape.push_back(settings.rank);
  auto initOf = [&](InitKind kind, double value) {
    return InitAttr::get(context, kind, builder.getF64FloatAttr(value), /*zeroRow=*/-1);
  };
  std::string tensorA = matrix.module + ".lora_A.weight", tensorB = matrix.module + ".lora_B.weight";
  const int64_t allA[] = {settings.rank, matrix.allInputs}, allB[] = {matrix.allOutputs, settings.rank};
  auto with = [](SmallVector<int64_t> sizes, int64_t last) {
    sizes.push_back(last);
    return sizes;
  };
  auto sourceA = SourceAttr::get(context, pcrt::adapterPrefix + tensorA, allA, {0, 0}, allA, {});
  auto sourceB = SourceAttr::get(context, pcrt::adapterPrefix + tensorB, allB, with(matrix.start, 0),
                                 with(matrix.size, settings.rank),
                                 matrix.view.size() == 1 ? SmallVector<int64_t>() : with(matrix.view, settings.rank));
  // A tensor of several parameters needs one B for each of them: their names differ in the suffix.
  StringRef suffix = weight.getName();
  suffix.consume_front(matrix.module + ".weight");
  Value a = leaf(builder, tensorA, inDims, inShape,
                 initOf(InitKind::Normal, 1 / std::sqrt(3 * static_cast<double>(matrix.allInputs))), sourceA);
  Value b = leaf(builder, tensorB + suffix, outDims, outShape, initOf(InitKind::Fill, 0), sourceB);

  // Products that read the same value with parts of one module share A x.
  Value &ax = low[{matrix.module, product.x.getAsOpaquePointer()}];
  if (!ax) {
    Value x = product.x;
    if (settings.dropout > 0) {
      Value random = InputOp::create(builder, loc, RankedTensorType::get({PCRT_RANDOM_COUNT}, builder.getI32Type()),
                                     InputKind::Random, builder.getStrArrayAttr({"random"}), nullptr, nullptr,
                                     builder.getI64IntegerAttr(drops++), nullptr, nullptr, nullptr);
      // The threshold of a drop has 16 bits. It is at least 1, so that a small probability still drops something.
      auto threshold = static_cast<int64_t>(std::nearbyint(65536 * settings.dropout));
      x = DropoutOp::create(builder, loc, x.getType(), x, random, ValueRange(),
                            DropAttr::get(context, std::clamp<int64_t>(threshold, 1, 65535)));
    }
    SmallVector<int64_t> shape;
    for (auto [factor, size] : llvm::zip_equal(product.ofX, cast<RankedTensorType>(x.getType()).getShape()))
      if (!product.isInput(factor))
        shape.push_back(size);
    shape.push_back(settings.rank);
    std::string spec = product.names(product.ofX) + ", " + letter + " " + product.names(product.ofWeight, true) +
                       " -> " + product.names(product.ofX, false, letter);
    ax = EinsumOp::create(builder, loc, RankedTensorType::get(shape, type.getElementType()), spec, ValueRange{x, a});
  }
  builder.setInsertionPointAfter(op);
  std::string spec = product.names(product.ofX, false, letter) + ", " + product.names(product.ofWeight, false, letter) +
                     " -> " + product.names(product.ofResult);
  Value bax = EinsumOp::create(builder, loc, type, spec, ValueRange{ax, b});
  Value scaled = ScaleOp::create(builder, loc, type, bax,
                                 builder.getF64FloatAttr(settings.alpha / static_cast<double>(settings.rank)));
  auto sum = AddOp::create(builder, loc, type, op.getResult(), scaled);
  op.getResult().replaceAllUsesExcept(sum.getResult(), sum);
}

/// Adds PEFT's adapter_config.json to the program's description of its files. The run fills in the location of the
/// base.
void AddAdapters::describe(ProgramOp program, const Lora &settings) {
  // PEFT matches plain names at the end of a module's name, as NameGlobs does. It does not know globs, so a list with
  // globs becomes the list of all modules that it fits.
  llvm::json::Array targets;
  bool inputsFirst = false;
  if (settings.targets.text().find_first_of("*?[{\\") == StringRef::npos) {
    SmallVector<StringRef> words;
    settings.targets.text().split(words, '|');
    for (StringRef word : words)
      targets.push_back(word);
  }
  llvm::StringSet<> modules;
  bool isListed = !targets.empty();
  for (const auto &[parameter, matrix] : matrices) {
    inputsFirst |= matrix.inputsFirst;
    if (!isListed && modules.insert(matrix.module).second)
      targets.push_back(matrix.module);
  }
  bool isCausal = program.getMeans() && !program.getMasked();
  auto number = [](double value) {
    return value == std::floor(value) && value < 1e15 ? llvm::json::Value(static_cast<int64_t>(value))
                                                      : llvm::json::Value(value);
  };
  llvm::json::Object config{{"peft_type", "LORA"},
                            {"task_type", isCausal ? llvm::json::Value("CAUSAL_LM") : llvm::json::Value(nullptr)},
                            {"base_model_name_or_path", nullptr},
                            {"r", settings.rank},
                            {"lora_alpha", number(settings.alpha)},
                            {"lora_dropout", settings.dropout},
                            {"target_modules", std::move(targets)},
                            {"fan_in_fan_out", inputsFirst},
                            {"bias", "none"},
                            {"inference_mode", true}};
  auto means = llvm::json::parse(program.getMeans().value_or("[]"));
  llvm::json::Array all;
  if (means && means->getAsArray())
    all = std::move(*means->getAsArray());
  else
    llvm::consumeError(means.takeError());
  all.push_back(llvm::json::Object{{"adapter", std::move(config)}});
  program.setMeans(llvm::formatv("{0}", llvm::json::Value(std::move(all))).str());
}
