//===- Feeds.cpp - Values of leaves, from names and global indices ----------------------------===//
// Every value depends on the seed, the leaf's name and the element's index in the unpadded global tensor, so it is the
// same for all meshes, placements, paddings and packings. Programs of all phases can therefore be compared.
//===-----------------------------------------------------------------------------===//
#include "pc/Reference/Feeds.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Groups.h"
#include "pcrt/description.h"

#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace pc;

/// A counter-based generator: 64 well mixed bits of `x` (splitmix64).
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// Uniform in (0, 1).
static double uniform(uint64_t bits) { return ((bits >> 11) + 0.5) * 0x1p-53; }

/// Normal with mean 0 and deviation 1 (Box and Muller).
static double normal(uint64_t bits) {
  return std::sqrt(-2 * std::log(uniform(mix(bits)))) * std::cos(2 * M_PI * uniform(mix(bits + 1)));
}

/// FNV-1a, which is the same on every machine.
static uint64_t hashOf(StringRef name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (unsigned char c : name)
    hash = (hash ^ c) * 0x100000001b3ull;
  return hash;
}

/// In placed programs the type contains both shape and placement; in local programs the attributes do.
LeafLayout pc::leafLayout(Operation *op, Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  LeafLayout layout{Shape(type.getShape()), placement(type)};
  llvm::TypeSwitch<Operation *>(op).Case<ParameterOp, StateOp, InputOp, RopeTableOp, OutputOp>([&](auto leaf) {
    if (leaf.getGlobal())
      layout = {Shape(*leaf.getGlobal()), leaf.getLayout().value_or(PlaceAttr())};
  });
  return layout;
}

/// Ids must be in the vocabulary. Its size is read from the program's attributes or, if there are none, from the
/// parameters.
Feeds::Feeds(func::FuncOp program, uint64_t seed) : seed(seed) {
  program.walk([&](ParameterOp parameter) {
    Shape shape = leafLayout(parameter, parameter.getValue()).global;
    parameters[parameter.getName()] = parameter;
    if (parameter.getValid())
      shape = Shape(*parameter.getValid());
    for (auto [name, size] : llvm::zip(parameter.getDims().getAsValueRange<StringAttr>(), shape))
      if (name == "vocab")
        vocabulary = vocabulary ? std::min(vocabulary, size) : size;
  });
  if (auto module = program->getParentOfType<ModuleOp>())
    for (ProgramOp op : module.getOps<ProgramOp>())
      vocabulary = op.getVocabulary(), batch = op.getBatch();
}

/// The dims of the parameter that the state has (by default all).
static SmallVector<int64_t> dimsOf(ParameterOp parameter, StateOp state) {
  auto all = llvm::to_vector(llvm::seq<int64_t>(0, parameter.getDims().size()));
  return state ? dimsOfState(state, parameter).value_or(all) : all;
}

std::optional<Shape> Feeds::validShape(StringRef parameter, StateOp state) const {
  ParameterOp of = parameters.lookup(parameter);
  if (!of || !of.getValid() || (state && isHistory(state)))
    return std::nullopt;
  return Shape(validShapeOfState(of, dimsOf(of, state)));
}

SmallVector<ParameterPart> Feeds::packedParts(StringRef parameter, StateOp state) const {
  ParameterOp of = parameters.lookup(parameter);
  if (!of || !of.getParts())
    return {};
  if (std::optional<SmallVector<int64_t>> block = state ? blockOfState(state, of) : std::nullopt)
    return partsOfBlocks(of, *block).value_or(SmallVector<ParameterPart>());
  if (state && isHistory(state))
    return partsOfState(state, of).value_or(SmallVector<ParameterPart>());
  return partsOfState(of, dimsOf(of, state)).value_or(SmallVector<ParameterPart>());
}

/// Element i depends on the name, the seed and i in the part without padding.
Tensor Feeds::draw(StringRef name, ArrayRef<int64_t> shape, const Shape *valid,
                   llvm::function_ref<double(uint64_t)> element) const {
  Tensor inside(valid ? ArrayRef<int64_t>(*valid) : shape);
  uint64_t key = mix(hashOf(name) ^ mix(seed));
  for (int64_t i = 0; i < inside.size(); ++i)
    inside[i] = element(mix(key + i));
  if (!valid)
    return inside;
  Tensor padded(shape);
  padded.merge(Shape(shape.size(), 0), inside, [](double &whole, double x) { whole = x; });
  return padded;
}

/// Reorders `x` along `dim` from plain to zigzag order, or with `back` from zigzag to plain order.
Tensor pc::reorderSequence(Operation *op, const Tensor &x, int64_t dim, bool back) {
  if (!zigzagRanks(op))
    return x;
  Tensor result(x.shape);
  int64_t inner = 1, length = x.shape[dim];
  for (int64_t size : ArrayRef(x.shape).drop_front(dim + 1))
    inner *= size;
  for (int64_t i = 0; i < x.size(); ++i) {
    // In zigzag order, the element at `index` is the element at position `other` in plain order.
    int64_t index = i / inner % length, other = i + (sequencePosition(op, index) - index) * inner;
    back ? result[other] = x[i] : result[i] = x[other];
  }
  return result;
}

/// A tensor of a parameter, whose parts are drawn under their own names after `prefix`.
Tensor Feeds::drawParts(ArrayRef<ParameterPart> parts, ArrayRef<int64_t> shape, const std::string &prefix,
                        llvm::function_ref<double(uint64_t)> element) const {
  Tensor whole(shape);
  for (const ParameterPart &part : parts)
    whole.merge(part.start, draw(prefix + part.name.str(), part.size, nullptr, element),
                [](double &to, double x) { to = x; });
  return whole;
}

/// The random words of a dropout: those of step 0, for each microbatch if there is a dim of microbatches.
FailureOr<Tensor> Feeds::readRandom(InputOp op, const Shape &shape) const {
  int64_t microbatches = shape.size() == 2 ? shape[0] : 1;
  if (shape.empty() || shape.back() != PCRT_RANDOM_COUNT || shape.size() > 2)
    return op.emitOpError() << "needs " << int(PCRT_RANDOM_COUNT) << " words per microbatch";
  if (!batch && microbatches > 1)
    return op.emitOpError() << "has a number of rows that is not known; the interpreter needs a pc.program";
  Tensor words(shape);
  for (int64_t m = 0; m < microbatches; ++m) {
    double *of = &words.data[m * PCRT_RANDOM_COUNT];
    of[PCRT_RANDOM_SEED_LOW] = static_cast<int32_t>(seed), of[PCRT_RANDOM_SEED_HIGH] = static_cast<int32_t>(seed >> 32);
    of[PCRT_RANDOM_KEY] = static_cast<double>(*op.getKey());
    of[PCRT_RANDOM_ROW] = static_cast<double>(m * (batch / microbatches));
  }
  return words;
}

/// The start of each token's document, or the token's index in it. A fifth of the tokens begins a document.
Tensor Feeds::drawDocuments(const Shape &shape, bool starts) const {
  Tensor result = draw("starts", shape, nullptr, [&](uint64_t bits) { return uniform(bits) < 0.2; });
  int64_t length = shape.empty() ? 1 : shape.back(), start = 0;
  for (int64_t i = 0; i < result.size(); ++i) {
    int64_t at = i % length;
    start = at == 0 || result[i] ? at : start;
    result[i] = static_cast<double>(starts ? start : at - start);
  }
  return result;
}

/// One case per kind of leaf; Feeds.h lists the distributions.
FailureOr<Tensor> Feeds::read(Operation *leaf) const {
  Shape shape = leafLayout(leaf, leaf->getResult(0)).global;
  return llvm::TypeSwitch<Operation *, FailureOr<Tensor>>(leaf)
      .Case([&](ParameterOp op) {
        // Codes are signed and symmetric: from -127 to 127, or from -7 to 7.
        if (Type element = getElementTypeOrSelf(op.getType()); isCode(element)) {
          const double most = element.isInteger(8) ? 127 : 7;
          return drawParts(partsOf(op), shape, "",
                           [&](uint64_t bits) { return std::floor(uniform(bits) * (2 * most + 1)) - most; });
        }
        // Parameters that start at a constant stay near it, such as the scales of norms near 1.
        double start = op.getInit().getKind() == InitKind::Fill ? op.getInit().getValue().getValueAsDouble() : 0;
        double deviation = start == 0 ? 0.3 : 0.1;
        return drawParts(partsOf(op), shape, "", [&](uint64_t bits) { return start + deviation * normal(bits); });
      })
      .Case([&](StateOp op) -> FailureOr<Tensor> {
        std::optional<Shape> valid = validShape(op.getParameter(), op);
        if (valid && (valid->size() != shape.size() || llvm::any_of(llvm::zip(*valid, shape), [](auto pair) {
                        return std::get<0>(pair) > std::get<1>(pair);
                      })))
          return op.emitOpError() << "has a different shape than its padded parameter";
        // These codes stand for at least 0.1 if they are unsigned: the update divides by roots of such states.
        const bool hasCodes = isCode(getElementTypeOrSelf(op.getType()));
        auto element = [&](uint64_t bits) {
          if (isHistory(op)) // magnitudes like those of the drawn parameters
            return 0.5 + uniform(bits);
          return hasCodes ? std::floor(uniform(bits) * 128) - 128 : 1e-3 + 9e-3 * uniform(bits);
        };
        if (SmallVector<ParameterPart> parts = packedParts(op.getParameter(), op); !parts.empty())
          return drawParts(parts, shape, (op.getName() + " of ").str(), element);
        return draw((op.getName() + " of " + op.getParameter()).str(), shape, valid ? &*valid : nullptr, element);
      })
      .Case([&](InputOp op) -> FailureOr<Tensor> {
        if (op.getKind() == InputKind::Hyper) {
          Tensor hyper(shape);
          if (hyper.size() != PCRT_HYPER_COUNT)
            return op.emitOpError() << "needs " << int(PCRT_HYPER_COUNT) << " hyper-parameters";
          // The corrections are those of the first step.
          DictionaryAttr group = op.getGroupAttr();
          double beta1 = settingOf(group, "beta1", .9), beta2 = settingOf(group, "beta2", .99);
          hyper[PCRT_HYPER_LR] = 1e-2 * settingOf(group, "lr_factor", 1);
          hyper[PCRT_HYPER_BETA1] = beta1, hyper[PCRT_HYPER_CORRECTION1] = 1 - beta1;
          hyper[PCRT_HYPER_BETA2] = beta2, hyper[PCRT_HYPER_CORRECTION2] = 1 - beta2;
          hyper[PCRT_HYPER_EPS] = settingOf(group, "eps", 1e-8), hyper[PCRT_HYPER_CLIP] = .05;
          hyper[PCRT_HYPER_WEIGHT_DECAY] = settingOf(group, "decay", .1 * settingOf(group, "decay_factor", 1));
          hyper[PCRT_HYPER_NORM_LIMIT] = INFINITY;
          return hyper;
        }
        if (op.getKind() == InputKind::Random)
          return readRandom(op, shape);
        if (op.getKind() == InputKind::Starts || op.getKind() == InputKind::Positions)
          return drawDocuments(shape, op.getKind() == InputKind::Starts);
        if (op.getKind() == InputKind::LossWeights) { // a quarter of the targets do not count
          Tensor weights = draw("loss_weights", shape, nullptr, [&](uint64_t bits) {
            return uniform(bits) < 0.25 ? 0 : 1 / static_cast<double>(numElements(shape));
          });
          return reorderSequence(op, weights, shape.size() - 1, /*back=*/false);
        }
        if (op.getKind() == InputKind::Data) {
          auto bound = static_cast<double>(op.getBelow().value_or(0));
          return draw(*op.getName(), shape, nullptr,
                      [&](uint64_t bits) { return bound > 0 ? std::floor(uniform(bits) * bound) : normal(bits); });
        }
        auto bound = static_cast<double>(op.getBelow().value_or(static_cast<uint64_t>(vocabulary)));
        if (bound == 0)
          return op.emitOpError() << "has unknown bounds: the interpreter needs pc.program or a parameter with a dim "
                                     "named \"vocab\"";
        Tensor ids = draw(stringifyInputKind(op.getKind()), shape, nullptr,
                          [&](uint64_t bits) { return std::floor(uniform(bits) * bound); });
        return reorderSequence(op, ids, shape.size() - 1, /*back=*/false);
      })
      .Case([&](RopeTableOp op) -> FailureOr<Tensor> {
        if (shape.size() != 2 || shape[1] != static_cast<int64_t>(op.getInvFreq().size()))
          return op.emitOpError() << "needs one inverse frequency per column";
        Tensor table(shape);
        double scale = op.getScale().convertToDouble();
        for (int64_t i = 0; i < table.size(); ++i) {
          double angle = static_cast<double>(sequencePosition(op, i / shape[1])) * op.getInvFreq()[i % shape[1]];
          table[i] = scale * (op.getKind() == TableKind::Cos ? std::cos(angle) : std::sin(angle));
        }
        return table;
      })
      .Case([&](ConstantOp op) { return Tensor(shape, op.getNumber().convertToDouble()); })
      .Case([&](SeedOp) { return Tensor(shape, 1); })
      .Default([](Operation *other) -> FailureOr<Tensor> {
        return other->emitOpError() << "is not an input, parameter or state";
      });
}
