//===- CompareKernels.cpp - Compares compiled kernels with the interpreter -------------------------===//
// Draws random operands, runs each distinct kernel on them in all its forms, and compares the results with those of the
// interpreter. The allowed difference follows from types and lengths of sums.
//===-----------------------------------------------------------------------------------------------===//
#include "CompareKernels.h"
#include "pc/Cost/Cost.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Liveness.h"
#include "pc/Reference/Interpreter.h"
#include "pcrt/block_codes.h"
#include "pcrt/float8.h"

#include "llvm/Support/Format.h"
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

using namespace mlir;
using namespace pc;
using Bytes = CompiledKernels::Bytes;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

static pcrt_float8 formatOf(Type element) { return isa<Float8E4M3FNType>(element) ? pcrt_e4m3() : pcrt_e5m2(); }

/// Draws an operand, as numbers and as bytes.
static std::pair<Tensor, Bytes> draw(Value value, KernelSample sample, std::mt19937_64 &random) {
  Tensor tensor(typeOf(value).getShape());
  Type element = typeOf(value).getElementType();
  Bytes bytes(byteSize(value.getType()));
  int32_t largest = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    uint64_t bits = random();
    if (element.isInteger(8)) { // any byte is a code
      bytes[i] = static_cast<char>(bits);
      tensor[i] = static_cast<int8_t>(bits);
      continue;
    }
    if (isFloat8(element)) { // a code of a number
      auto byte = static_cast<uint8_t>(bits);
      if (std::isnan(pcrt_number_of_float8(formatOf(element), byte)))
        byte &= 0x80;
      bytes[i] = static_cast<char>(byte);
      tensor[i] = pcrt_number_of_float8(formatOf(element), byte);
      continue;
    }
    // Integers are drawn below a limit, or as the sample asks: each number in turn, in runs of equal numbers, or
    // ascending.
    if (element.isInteger()) {
      auto number = static_cast<int32_t>(bits % static_cast<uint64_t>(sample.below));
      if (sample.counts)
        number = static_cast<int32_t>(i % sample.below);
      if (sample.run)
        number = static_cast<int32_t>(std::min(i / sample.run, sample.below - 1));
      if (sample.ascending)
        number = largest = std::max(largest, number);
      tensor[i] = number;
      memcpy(bytes.data() + 4 * i, &number, 4);
      continue;
    }
    // 24 bits, which an f32 holds exactly. Positive numbers stay away from 0, because kernels divide by them or take
    // their logarithms.
    double unit = static_cast<double>(bits >> 40) / (1 << 24),
           number = sample.positive ? 0.1 + 0.8 * unit : 2 * unit - 1;
    auto single = static_cast<float>(element.isBF16() ? roundToBf16(number) : number);
    tensor[i] = single;
    if (element.isBF16()) {
      auto half = static_cast<uint16_t>(std::bit_cast<uint32_t>(single) >> 16);
      memcpy(bytes.data() + 2 * i, &half, 2);
    } else {
      memcpy(bytes.data() + 4 * i, &single, 4);
    }
  }
  return {std::move(tensor), std::move(bytes)};
}

/// Converts the bytes of a buffer to doubles.
static Tensor read(Value value, const Bytes &bytes) {
  Tensor tensor(typeOf(value).getShape());
  Type element = typeOf(value).getElementType();
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (isFloat8(element)) {
      tensor[i] = pcrt_number_of_float8(formatOf(element), static_cast<uint8_t>(bytes[i]));
      continue;
    }
    uint32_t word = 0;
    memcpy(&word, bytes.data() + (element.isBF16() ? 2 * i : 4 * i), element.isBF16() ? 2 : 4);
    tensor[i] =
        element.isInteger() ? std::bit_cast<int32_t>(word) : std::bit_cast<float>(element.isBF16() ? word << 16 : word);
  }
  return tensor;
}

namespace {
/// The largest allowed difference between a kernel and the interpreter.
struct Bound {
  int64_t length = 1; ///< the length of its longest sum
  bool hasBf16 = false;
  double steps = 0; ///< operations of the interpreter

  /// Reads the lengths of sums, the types and the work from the shapes of all ops in `op`.
  explicit Bound(Operation *op) {
    op->walk([&](Operation *inner) {
      int64_t most = 1, fewest = std::numeric_limits<int64_t>::max();
      for (Value value :
           llvm::concat<Value>(llvm::to_vector(inner->getOperands()), llvm::to_vector(inner->getResults()))) {
        auto type = typeOf(value);
        hasBf16 |= type.getElementType().isBF16();
        steps += static_cast<double>(type.getNumElements());
        most = std::max(most, type.getNumElements());
        for (int64_t size : type.getShape())
          length = std::max(length, size);
      }
      for (Value result : inner->getResults())
        fewest = std::min(fewest, std::max<int64_t>(1, typeOf(result).getNumElements()));
      length = std::max(length, most / fewest);
      if (!isa<FusionOp>(inner) && inner->getNumResults())
        steps += flopsOf(inner);
    });
  }
  /// The rounding error of a sum grows like the square root of its length. A value near a tie may be rounded to bf16 in
  /// the other direction, which is one unit in its last place, and values computed from it may differ by a few units.
  double difference() const {
    return std::ldexp(128, -24) * std::sqrt(static_cast<double>(length)) + (hasBf16 ? std::ldexp(5, -8) : 0);
  }
};
} // namespace

/// Whether the bytes of a result are the codes of the interpreter.
static bool areCodes(const Bytes &made, const Tensor &wanted) {
  std::vector<int8_t> bytes;
  for (int64_t i = 0; i < wanted.size(); ++i)
    bytes.push_back(static_cast<int8_t>(wanted[i]));
  return pcrt_are_codes(reinterpret_cast<const int8_t *>(made.data()), bytes.data(), wanted.size());
}

/// Sets the scales of addends in codes, whose other bytes are drawn.
static void setScales(WireAttr wire, Tensor &tensor, Bytes &bytes) {
  constexpr int64_t ofScale = sizeof(float);
  for (int64_t end = wire.blockBytes(); end <= tensor.size(); end += wire.blockBytes()) {
    const float scale = 0.01F * static_cast<float>(1 + end % 7);
    memcpy(bytes.data() + end - ofScale, &scale, ofScale);
    for (int64_t i = end - ofScale; i < end; ++i)
      tensor[i] = static_cast<int8_t>(bytes[i]);
  }
}

/// Compares one form of a kernel. Returns PCRT_OK, or the status after an error.
static pcrt_status compare(const WrittenKernel &kernel, bool inF32, const CompiledKernels &compiled,
                           const Bound &bound) {
  Operation *op = *kernel.op;
  std::mt19937_64 random(1);
  std::vector<Tensor> operands;
  std::vector<Bytes> bytes;
  llvm::DenseMap<Value, size_t> drawn;
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    if (auto [it, isNew] = drawn.try_emplace(operand, i); !isNew) {
      operands.push_back(Tensor(operands[it->second]));
      bytes.push_back(Bytes(bytes[it->second]));
      continue;
    }
    auto [tensor, raw] = draw(operand, sampleOf(op, i), random);
    if (auto decode = dyn_cast<DecodeSumOp>(op))
      setScales(decode.getWire(), tensor, raw);
    if (isa<EncodeScaledOp>(op) && i == 1) { // a power of two
      const float scale = 0.125F;
      memcpy(raw.data(), &scale, sizeof scale);
      tensor[0] = scale;
    }
    operands.push_back(std::move(tensor));
    bytes.push_back(std::move(raw));
  }
  auto refuse = [&](const Twine &why) {
    op->emitOpError() << "has kernel @" << kernel.function << (inF32 ? "_f32" : "") << ", which " << why
                      << "; the kernel does not compute its op";
    return PCRT_VERIFICATION;
  };
  std::vector<Bytes> results;
  auto seconds = static_cast<unsigned>(2 + bound.steps / 1e7); // a hundred times the usual time
  if (std::string wrong = compiled.run(kernel, bytes, inF32, seconds, results); !wrong.empty())
    return refuse(wrong);
  bool isCopy = isa<UpdateOp>(op);
  FailureOr<std::vector<Tensor>> expected =
      isCopy ? std::vector<Tensor>{operands[0]} : interpretOp(kernel.planned, op, operands);
  if (failed(expected))
    return PCRT_INTERNAL;
  double largest = 0;
  for (auto [i, tensor] : llvm::enumerate(*expected))
    if (!typeOf(isCopy ? op->getOperand(0) : op->getResult(i)).getElementType().isInteger(8))
      largest = std::max(largest, largestElement(tensor));
  for (auto [i, wanted] : llvm::enumerate(*expected)) {
    Value value = isCopy ? op->getOperand(0) : op->getResult(i);
    if (typeOf(value).getElementType().isInteger(8)) {
      if (!areCodes(results[i], wanted))
        return refuse("computes codes in result " + Twine(i) + " that differ from the interpreter's");
      continue;
    }
    double difference = largestDifference(read(value, results[i]), wanted, std::max(1e-6, largest / 8));
    if (!(difference <= bound.difference())) {
      std::string text;
      llvm::raw_string_ostream(text) << "computes result " << i
                                     << " differently from the interpreter: relative difference "
                                     << llvm::format("%.1e", difference) << ", while rounding explains at most "
                                     << llvm::format("%.1e", bound.difference());
      return refuse(text);
    }
  }
  return PCRT_OK;
}

/// Sorts kernels by the work of the interpreter, and leaves out the kernels at the end that exceed one of the two
/// limits.
pcrt_status pc::compareKernels(ArrayRef<WrittenKernel> kernels, StringRef object, double mostSteps, double mostInAll,
                               int64_t &leftOut) {
  std::vector<std::pair<Bound, size_t>> chosen;
  for (auto [i, kernel] : llvm::enumerate(kernels))
    chosen.push_back({Bound(*kernel.op), i});
  llvm::sort(chosen,
             [](auto &a, auto &b) { return std::pair(a.first.steps, a.second) < std::pair(b.first.steps, b.second); });
  double steps = 0;
  llvm::erase_if(chosen, [&](auto &one) {
    steps += one.first.steps;
    return one.first.steps > mostSteps || steps > mostInAll;
  });
  leftOut = static_cast<int64_t>(kernels.size() - chosen.size());
  if (chosen.empty())
    return PCRT_OK;
  std::string error;
  std::unique_ptr<CompiledKernels> compiled = CompiledKernels::load(object, error);
  if (!compiled) {
    (*kernels[0].op)->emitError() << "the kernels' object file cannot be read: " << error;
    return PCRT_INTERNAL;
  }
  for (auto &[bound, i] : chosen)
    for (bool inF32 : {false, true})
      if (!inF32 || kernels[i].hasF32Form)
        if (pcrt_status status = compare(kernels[i], inF32, *compiled, bound))
          return status;
  return PCRT_OK;
}
