//===- Optimizers.cpp - Copies the definition of an optimizer for each parameter ----------------===//
// A definition has one name for several dims of a parameter. The copy has the parameter's shape instead. Numbers that
// are known at compile time are computed here, in double precision, as PyTorch computes them in Python.
//===-----------------------------------------------------------------------------===//
#include "pc/Autodiff/Optimizers.h"

#include "Gradients.h"
#include "Settings.h"
#include "pc/IR/Layers.h"
#include "pc/IR/Parts.h"
#include "pcrt/description.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace pc;

/// All files of Optimizers/, one after the other.
static constexpr const char builtInText[] =
#include "Optimizers.inc"
    ;

static bool isOp(StringRef name) { return name == "adamw" || name == "sgd"; }

bool pc::isTable(ParameterOp parameter) {
  return llvm::any_of(parameter->getUsers(), [&](Operation *user) {
    auto embedding = dyn_cast<EmbeddingOp>(user);
    return embedding && embedding.getTable() == parameter.getValue();
  });
}

/// The names of parameters whose products are the logits of a loss.
static void findHeads(func::FuncOp model, llvm::StringSet<> &names) {
  llvm::SetVector<Value> open;
  for (auto loss : model.getOps<CrossEntropyOp>())
    open.insert(loss.getLogits());
  for (size_t i = 0; i < open.size(); ++i) {
    Operation *op = open[i].getDefiningOp();
    bool isProduct = false;
    if (isa_and_nonnull<EinsumOp>(op))
      for (Value operand : op->getOperands())
        if (auto parameter = operand.getDefiningOp<ParameterOp>();
            parameter && cast<RankedTensorType>(operand.getType()).getRank() > 1) {
          names.insert(parameter.getName());
          isProduct = true;
        }
    if (op && !isProduct)
      open.insert(op->operand_begin(), op->operand_end());
  }
}

namespace {
/// The dims of a parameter that are its stack, rows and columns, as the checkpoint stores it.
struct MatrixDims {
  SmallVector<int64_t> of[3];
};
} // namespace

static int64_t sizeOf(ArrayRef<int64_t> shape, ArrayRef<int64_t> dims) {
  int64_t size = 1;
  for (int64_t dim : dims)
    size *= shape[dim];
  return size;
}

/// The matrices of a parameter; none for vectors, tensors of more dims that are no experts, and packed parameters.
static std::optional<MatrixDims> matricesOf(ParameterOp parameter) {
  ArrayRef<int64_t> shape = validShape(parameter);
  SmallVector<ParameterPart> parts = partsOf(parameter);
  SourceAttr source = parts[0].source;
  MatrixDims result;
  // Dims of the parameter that belong to no dim of the matrix yet, in order.
  SmallVector<int64_t> open = llvm::to_vector(llvm::seq<int64_t>(0, shape.size()));
  if (parts.size() > 1) { // one expert after the other
    auto along = static_cast<int64_t>(*parameter.getAlong());
    if (parts[0].size[along] != 1)
      return std::nullopt;
    result.of[0].push_back(along);
    llvm::erase(open, along);
  }
  size_t stored = source.getShape().size();
  bool isStack = stored == 3 && parts.size() == 1 && cast<StringAttr>(parameter.getDims()[0]).getValue() == "experts";
  if (stored != (isStack ? 3 : 2))
    return std::nullopt;
  // The box has the dims of the checkpoint's tensor, or several dims for each of them.
  ArrayRef<int64_t> whole = source.boxShape(), box = source.getSize();
  size_t at = 0;
  auto next = open.begin();
  for (size_t i = 0; i < stored; ++i) {
    // Numbers of elements for dim i of the tensor: `all` in the tensor, `own` in the box, `found` in the parameter's
    // dims so far.
    int64_t all = 1, own = 1, found = 1;
    for (; at < whole.size() && (all < source.getShape()[i] || i + 1 == stored); ++at) {
      all *= whole[at];
      own *= box[at];
    }
    SmallVector<int64_t> &dims = result.of[i + 3 - stored];
    for (; next != open.end() && (found < own || (dims.empty() && shape[*next] == 1)); ++next) {
      found *= shape[*next];
      dims.push_back(*next);
    }
    if (all != source.getShape()[i] || found != own)
      return std::nullopt;
  }
  bool isContiguous = llvm::all_of(result.of, [](ArrayRef<int64_t> dims) {
    return dims.empty() || dims.back() - dims.front() + 1 == static_cast<int64_t>(dims.size());
  });
  return next == open.end() && isContiguous ? std::optional(std::move(result)) : std::nullopt;
}

/// Reads the name and the settings of the compile, and finds the definitions of all optimizers that groups name.
LogicalResult Optimizers::read(ModuleOp module, func::FuncOp model, StringRef text) {
  this->module = module;
  this->text = text.str();
  auto [name, list] = text.split(':');
  this->name = name.str();
  SmallVector<StringRef> names{name};
  for (auto parameter : model.getOps<ParameterOp>())
    if (DictionaryAttr group = parameter.getGroupAttr())
      if (auto own = group.getAs<StringAttr>("optimizer"))
        names.push_back(own);
  if (list.empty() && llvm::all_of(names, isOp)) // most compiles need no definition
    return success();
  for (auto parameter : model.getOps<ParameterOp>())
    if (isTable(parameter))
      notHidden.insert(parameter.getName());
  findHeads(model, notHidden);
  auto refuse = [&](const Twine &why) { return module.emitError() << "--optimizer=" << text << ": " << why; };
  builtIn = parseSourceString<ModuleOp>(builtInText, module.getContext(), "built-in optimizers");
  if (!builtIn)
    return refuse("cannot read the built-in definitions");
  for (StringRef one : names)
    if (!isOp(one) && !find(one)) {
      SmallVector<StringRef> known{"adamw", "sgd"};
      for (ModuleOp of : {*builtIn, module})
        for (auto optimizer : of.getOps<OptimizerOp>())
          known.push_back(optimizer.getName());
      return module.emitError() << "unknown optimizer '" << one << "'; expected " << llvm::join(known, ", ")
                                << " or a file that ends in .mlir";
    }
  OptimizerOp definition = isOp(name) ? OptimizerOp() : find(name);
  SmallVector<StringRef> entries;
  list.split(entries, ',', -1, /*KeepEmpty=*/false);
  for (StringRef entry : entries) {
    auto [setting, value] = settingIn(entry);
    DictionaryAttr defaults = definition ? definition.getSettingsAttr() : DictionaryAttr();
    if (!defaults || !defaults.contains(setting)) {
      SmallVector<StringRef> known;
      for (NamedAttribute one : defaults ? defaults : DictionaryAttr::get(module.getContext()))
        known.push_back(one.getName().getValue());
      return refuse("'" + setting + "' is not a setting; " +
                    (known.empty() ? "there are none" : "expected " + llvm::join(known, ", ")));
    }
    double number;
    if (value.getAsDouble(number) || !std::isfinite(number))
      return refuse("'" + entry + "' needs a number");
    if (!settings.try_emplace(setting, number).second)
      return refuse("'" + setting + "' occurs twice");
  }
  return success();
}

OptimizerOp Optimizers::find(StringRef name) const {
  for (ModuleOp of : {module, *builtIn})
    for (auto optimizer : of.getOps<OptimizerOp>())
      if (optimizer.getName() == name)
        return optimizer;
  return {};
}

/// Follows `others` of the definitions, starting at the group's own optimizer, until one of them fits the parameter. It
/// stops after 8 links, so that a cycle ends in an error.
FailureOr<std::string> Optimizers::nameFor(ParameterOp parameter) {
  DictionaryAttr group = parameter.getGroupAttr();
  auto own = group ? group.getAs<StringAttr>("optimizer") : StringAttr();
  std::string now = own ? own.str() : name;
  for (int links = 0; links < 8; ++links) {
    if (isOp(now))
      return now;
    OptimizerOp definition = find(now);
    if (!definition)
      return parameter.emitError() << "optimizer '" << (own ? own.getValue() : name) << "' leaves '"
                                   << parameter.getName() << "' to '" << now << "', which is not defined";
    auto isOfVectors = [&] { return partsOf(parameter)[0].source.getShape().size() < 2; };
    // Whether an element's update depends on other elements, or on their number.
    const bool isOfTensor =
        definition.hasSums() || llvm::is_contained(definition.names(definition.getScalars()), "size");
    auto isApart = [&] { return definition.isOfMatrices() ? !matricesOf(parameter) && !isOfVectors() : isOfTensor; };
    if (parameter.getParts() && isApart())
      return parameter.emitError() << "optimizer '" << now << "' works on each "
                                   << (definition.isOfMatrices() ? "matrix" : "tensor") << " separately, but '"
                                   << parameter.getName() << "' packs several; compile with --pack-products=false";
    bool isFit = !definition.isOfMatrices() ||
                 (matricesOf(parameter) && !(definition.getHidden() && notHidden.contains(parameter.getName())));
    if (isFit && !tileOf(parameter.getName()).empty() && (definition.isOfMatrices() || isOfTensor))
      return parameter.emitError() << "optimizer '" << now << "' needs whole matrices, but --tile divides '"
                                   << parameter.getName() << "'; leave out --tile, or choose another optimizer";
    if (isFit)
      return now;
    now = definition.getOthers().value_or("adamw").str();
  }
  return parameter.emitError() << "optimizer '" << (own ? own.getValue() : name) << "': no definition updates '"
                               << parameter.getName() << "', because each leaves it to another one";
}

std::string Optimizers::labelOf(StringRef name) const {
  if (isOp(name))
    return name.str();
  std::string label = name == this->name ? text : name.str();
  OptimizerOp definition = find(name);
  if (definition->getParentOp() == builtIn.get().getOperation())
    return label;
  std::string body;
  llvm::raw_string_ostream(body) << definition;
  return label + "@" + llvm::utohexstr(llvm::xxh3_64bits(body), /*LowerCase=*/true, 16).substr(8);
}

/// A number of `hyper` as a scalar, which all parameters of a group share.
Value Optimizers::hyperScalar(OpBuilder &builder, Value hyper, int number) {
  Value &scalar = scalars[{hyper, number}];
  if (!scalar) {
    auto of = [&](ArrayRef<int64_t> shape) { return RankedTensorType::get(shape, builder.getF32Type()); };
    Value one =
        ColumnsOp::create(builder, hyper.getLoc(), of({1}), hyper, IntegerAttr(), builder.getI64IntegerAttr(number));
    scalar = EinsumOp::create(builder, hyper.getLoc(), of({}), "x0 ->", ValueRange{one});
  }
  return scalar;
}

/// One copy of a definition.
struct Optimizers::Copy {
  Copy(OpBuilder &builder, Location loc, RankedTensorType parameter, SmallVectorImpl<Operation *> &scalars)
      : builder(builder), loc(loc), scalars(scalars), whole(parameter) {}

  OpBuilder &builder;
  Location loc;
  SmallVectorImpl<Operation *> &scalars; ///< ops of all copies that compute scalars
  RankedTensorType whole;                ///< the type of the parameter
  DefinedDims dims;                      ///< dims of all values of the definition
  SmallVector<SmallVector<int64_t>> of;  ///< for each name of the definition, dims of the parameter
  DenseMap<Value, double> numbers;       ///< values of the definition that are known
  IRMapping values;                      ///< values of the definition -> of the program

  /// The names of a value's dims in the order of the parameter's dims.
  SmallVector<int, 3> ordered(ArrayRef<int> names) const {
    SmallVector<int, 3> result(names);
    auto first = [&](int name) { return of[name].empty() ? -1 : of[name].front(); };
    llvm::stable_sort(result, [&](int a, int b) { return first(a) < first(b); });
    return result;
  }

  /// The dims of the parameter that a value has.
  SmallVector<int64_t> dimsOf(Value value) const {
    SmallVector<int64_t> result;
    for (int name : ordered(dims.at(value)))
      llvm::append_range(result, of[name]);
    return result;
  }

  RankedTensorType typeOf(Value value) const {
    SmallVector<int64_t> shape;
    for (int64_t dim : dimsOf(value))
      shape.push_back(whole.getDimSize(dim));
    return RankedTensorType::get(shape, cast<RankedTensorType>(value.getType()).getElementType());
  }

  /// Returns the value, or, for a scalar, an equal one that an earlier copy of the definition has computed.
  Value once(Value value) {
    Operation *op = value.getDefiningOp();
    if (cast<RankedTensorType>(value.getType()).getRank())
      return value;
    for (Operation *earlier : scalars)
      if (earlier == op || OperationEquivalence::isEquivalentTo(op, earlier, OperationEquivalence::IgnoreLocations)) {
        if (earlier != op)
          op->erase();
        return earlier->getResult(0);
      }
    scalars.push_back(op);
    return value;
  }

  Value get(Value value) {
    if (!values.contains(value))
      values.map(value,
                 once(ConstantOp::create(builder, loc, typeOf(value), builder.getF64FloatAttr(numbers.at(value)))));
    return values.lookup(value);
  }

  /// The number that an op of known numbers computes.
  std::optional<double> known(Operation &op) const {
    if (auto constant = dyn_cast<ConstantOp>(op))
      return constant.getNumber().convertToDouble();
    SmallVector<double> in;
    for (Value operand : op.getOperands())
      if (auto it = numbers.find(operand); it != numbers.end())
        in.push_back(it->second);
    if (in.empty() || in.size() != op.getNumOperands() || !dims.at(op.getResult(0)).empty())
      return std::nullopt;
    return llvm::TypeSwitch<Operation *, std::optional<double>>(&op)
        .Case([&](AddOp) { return in[0] + in[1]; })
        .Case([&](SubOp) { return in[0] - in[1]; })
        .Case([&](ScaleOp scale) { return in[0] * scale.getFactor().convertToDouble(); })
        .Case([&](RecipOp) { return 1 / in[0]; })
        .Case([&](SqrtOp) { return std::sqrt(in[0]); })
        .Case([&](ClampOp clamp) {
          double least = clamp.getFrom() ? clamp.getFrom()->convertToDouble() : in[0];
          return std::min(std::max(in[0], least), clamp.getTo().convertToDouble());
        })
        .Case([&](EinsumOp) {
          return std::accumulate(in.begin(), in.end(), 1.0, [](double a, double b) { return a * b; });
        })
        .Default([](Operation *) { return std::nullopt; });
  }

  /// Copies an einsum with a word for each dim. Known numbers become the factor of a scale.
  Value copy(EinsumOp einsum) {
    FactorRule rule = einsum.getFactorRule();
    auto words = [&](ArrayRef<int> factors, Value value) {
      std::string text;
      SmallVector<std::pair<int, int>> pairs; // a dim's name, and its factor
      for (auto [factor, name] : llvm::zip_equal(factors, dims.at(value)))
        pairs.push_back({name, factor});
      auto first = [&](int name) { return of[name].empty() ? -1 : of[name].front(); };
      llvm::stable_sort(pairs, [&](auto a, auto b) { return first(a.first) < first(b.first); });
      for (auto [name, factor] : pairs)
        for (size_t i = 0; i < of[name].size(); ++i)
          text +=
              (text.empty() ? "" : " ") + rule.factors[factor].name + (of[name].size() > 1 ? std::to_string(i) : "");
      return text;
    };
    // A number may multiply any operand, since an einsum is linear in each of them. If all operands are numbers, they
    // stay values.
    SmallVector<Value> operands;
    SmallVector<std::string> specs;
    double factor = 1;
    bool scales = false, isSpread = llvm::all_of(einsum.getInputs(), [&](Value v) { return numbers.count(v); });
    for (auto [operand, factors] : llvm::zip_equal(einsum.getInputs(), rule.operands)) {
      if (auto it = numbers.find(operand); it != numbers.end() && !isSpread) {
        factor *= it->second;
        scales = true;
        continue;
      }
      operands.push_back(get(operand));
      specs.push_back(words(factors, operand));
    }
    std::string out = words(rule.results[0], einsum.getResult());
    RankedTensorType type = typeOf(einsum.getResult());
    Value result = operands.size() == 1 && specs[0] == out
                       ? operands[0]
                       : once(EinsumOp::create(builder, loc, type, llvm::join(specs, ", ") + " -> " + out, operands));
    return scales ? once(ScaleOp::create(builder, loc, type, result, builder.getF64FloatAttr(factor))) : result;
  }

  void copy(Operation &op) {
    Value result = op.getResult(0);
    if (std::optional<double> number = known(op)) {
      numbers[result] = *number;
      return;
    }
    if (auto einsum = dyn_cast<EinsumOp>(op)) {
      values.map(result, copy(einsum));
      return;
    }
    for (Value operand : op.getOperands())
      get(operand);
    Operation *clone = builder.clone(op, values);
    clone->setLoc(loc);
    clone->getResult(0).setType(typeOf(result));
    values.map(result, once(clone->getResult(0)));
  }
};

Value pc::spread(OpBuilder &builder, Value scalar, Value of) {
  auto type = cast<RankedTensorType>(of.getType());
  if (!type.getRank())
    return scalar;
  return EinsumOp::create(builder, of.getLoc(), type, " -> " + dimLetters(of), ValueRange{scalar});
}

/// The comparison of the coefficient with itself is false only for NaN.
Value pc::keepIfSkipped(OpBuilder &builder, Value all, Value fresh, Value old) {
  return SelectOp::create(builder, old.getLoc(), old.getType(), ComparisonKind::Equal, all, all, fresh, old);
}

bool Optimizers::usesSettings(StringRef name) const {
  StringRef now = this->name;
  for (int links = 0; links < 8 && now != name; ++links) {
    OptimizerOp definition = isOp(now) ? OptimizerOp() : find(now);
    if (!definition)
      return false;
    now = definition.getOthers().value_or("adamw");
  }
  return now == name;
}

/// Writes the update of one parameter: an op for the built-in optimizers, otherwise a copy of the ops of the definition
/// in which dims, settings and scalars are those of this parameter.
FailureOr<Value> Optimizers::update(OpBuilder &builder, const UpdateOperands &operands, StringRef name) {
  ParameterOp parameter = operands.parameter;
  Location loc = parameter.getLoc();
  auto type = cast<RankedTensorType>(parameter.getValue().getType());
  StringAttr of = parameter.getNameAttr();
  auto state = [&](StringRef name, RankedTensorType type, ArrayAttr dims) -> Value {
    return StateOp::create(builder, loc, type, builder.getStringAttr(name), of, dims, nullptr, nullptr, nullptr);
  };
  auto update = [&](StringRef name, Value value) {
    UpdateOp::create(builder, loc, builder.getStringAttr(name), of, value);
  };
  if (name == "sgd") {
    Value updated = SGDOp::create(builder, loc, type, parameter.getValue(), operands.gradient, operands.coefficient,
                                  operands.hyper);
    UpdateOp::create(builder, loc, of, nullptr, updated);
    return updated;
  }
  if (name == "adamw") {
    Value first = state(PCRT_EXP_AVG, type, parameter.getDims());
    Value second = state(PCRT_EXP_AVG_SQ, type, parameter.getDims());
    auto adamw = AdamWOp::create(builder, loc, type, type, type, parameter.getValue(), operands.gradient, first, second,
                                 operands.coefficient, operands.hyper);
    UpdateOp::create(builder, loc, of, nullptr, adamw.getNewParameter());
    update(PCRT_EXP_AVG, adamw.getNewExpAvg());
    update(PCRT_EXP_AVG_SQ, adamw.getNewExpAvgSq());
    return Value(adamw.getNewParameter());
  }

  OptimizerOp definition = find(name);
  FailureOr<DefinedDims> dims = dimsOf(definition);
  if (failed(dims))
    return failure();
  Copy copy(builder, loc, type, scalarOps);
  copy.dims = std::move(*dims);
  ArrayRef<int64_t> shape = validShape(parameter);
  int64_t rows = 0, columns = 0;
  if (!definition.isOfMatrices()) {
    copy.of.push_back(llvm::to_vector(llvm::seq<int64_t>(0, type.getRank())));
  } else {
    MatrixDims matrices = *matricesOf(parameter);
    rows = sizeOf(shape, matrices.of[1]);
    columns = sizeOf(shape, matrices.of[2]);
    // The definition may call a matrix's dims `short` and `long`. Then a tall matrix is transposed by the names of its
    // dims, without moving data.
    if (definition.names(definition.getDims())[1] == "short" && rows > columns)
      std::swap(matrices.of[1], matrices.of[2]);
    copy.of.assign(std::begin(matrices.of), std::end(matrices.of));
  }
  std::string letters = dimLetters(parameter.getValue());
  // The values of the definition's first arguments: the parameter, the clipped gradient, and the states.
  SmallVector<Value> old{parameter.getValue(), // gradient, then states
                         EinsumOp::create(builder, loc, type, ", " + letters + " -> " + letters,
                                          ValueRange{operands.coefficient, operands.gradient})};
  Block &block = definition.getBlock();
  for (auto [i, one] : llvm::enumerate(definition.names(definition.getStates()))) {
    SmallVector<int64_t> own = copy.dimsOf(block.getArgument(2 + i));
    if (!partsOfState(parameter, own))
      return parameter.emitError()
             << "optimizer '" << name << "': the checkpoint merges several dims of '" << parameter.getName()
             << "' into one, but state '" << one
             << "' has only some of them; choose another optimizer for this parameter with --group";
    old.push_back(state(one, copy.typeOf(block.getArgument(2 + i)), namesOfState(parameter, own)));
  }
  for (auto [argument, value] : llvm::zip(block.getArguments(), old))
    copy.values.map(argument, value);
  const bool isSet = usesSettings(name);
  DictionaryAttr defaults = definition.getSettingsAttr();
  for (auto [argument, scalar] :
       llvm::zip_equal(block.getArguments().drop_front(old.size()), definition.names(definition.getScalars()))) {
    if (auto byDefault = defaults ? defaults.getAs<FloatAttr>(scalar) : FloatAttr()) {
      auto given = isSet ? settings.find(scalar) : settings.end();
      copy.numbers[argument] = given == settings.end() ? byDefault.getValueAsDouble() : given->second;
    } else if (int number = hyperNumber(scalar); number >= 0) {
      copy.values.map(argument, hyperScalar(builder, operands.hyper, number));
    } else {
      copy.numbers[argument] = static_cast<double>(scalar == "rows"      ? rows
                                                   : scalar == "columns" ? columns
                                                                         : ShapedType::getNumElements(shape));
    }
  }
  for (Operation &op : block.without_terminator())
    copy.copy(op);

  // From here, `old` has the values to keep if the run skips the step: the parameter and the states.
  old.erase(old.begin() + 1);
  Value whole, updated;
  for (auto [i, value] : llvm::enumerate(block.getTerminator()->getOperands())) {
    Type own = old[i].getType();
    Value all = own == type && whole ? whole : spread(builder, operands.coefficient, old[i]);
    whole = own == type ? all : whole;
    Value kept = keepIfSkipped(builder, all, copy.get(value), old[i]);
    if (i == 0)
      UpdateOp::create(builder, loc, of, nullptr, updated = kept);
    else
      update(definition.names(definition.getStates())[i - 1], kept);
  }
  return updated;
}
