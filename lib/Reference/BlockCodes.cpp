//===- BlockCodes.cpp - The meaning of codes of 8 bits with a scale per block -----------------===//
// The numbers of codes are in pcrt/block_codes.h and pcrt/float8.h. A code is its byte, read as a signed number; a
// float of 8 bits is its number. Addends that are sent as codes are bytes, too, so that they can be compared with those
// of a kernel.
//===-----------------------------------------------------------------------------------------===//
#include "pc/IR/BlockCodes.h"
#include "Evaluators.h"
#include "pcrt/block_codes.h"
#include "pcrt/float8.h"

#include <array>
#include <bit>
#include <cmath>

using namespace mlir;
using namespace pc;

static pcrt_float8 formatOf(Type element) { return isa<Float8E4M3FNType>(element) ? pcrt_e4m3() : pcrt_e5m2(); }

/// The number of the scale of an element. Scales without dims are one scale for all elements.
static int64_t scaleOf(int64_t element, const Shape &shape, const Shape &scales) {
  return scales.empty()
             ? 0
             : pcrt_scale_of_element(element, static_cast<int32_t>(shape.size()), shape.data(), scales.data());
}

Tensors pc::decode(DecodeOp op, Inputs in) {
  const pcrt_dynamic_code code = pcrt_dynamic(op.getIsUnsigned());
  const Tensor &codes = *in[0], &scales = *in[1];
  Tensor result(codes.shape);
  for (int64_t i = 0; i < result.size(); ++i) {
    if (op.getIsFloat8()) {
      result[i] = codes[i] * scales[scaleOf(i, codes.shape, scales.shape)];
      continue;
    }
    auto byte = static_cast<int8_t>(codes[i]);
    result[i] =
        (op.getIsLinear() ? byte : pcrt_number_of_byte(&code, byte)) * scales[scaleOf(i, codes.shape, scales.shape)];
  }
  return {result};
}

/// Codes whose scale follows from the largest magnitude of a block: `scaleFor` of it. A block with an element that is
/// not finite has the scale NaN.
static Tensors encodeByMagnitude(const Tensor &x, const Shape &ofScales, llvm::function_ref<double(double)> scaleFor,
                                 llvm::function_ref<double(double)> round) {
  Tensor codes(x.shape), scales(ofScales);
  auto scale = [&](int64_t i) -> double & { return scales[scaleOf(i, x.shape, ofScales)]; };
  for (int64_t i = 0; i < x.size(); ++i)
    scale(i) = std::isfinite(x[i]) ? std::max(scale(i), std::abs(x[i])) : NAN;
  for (int64_t i = 0; i < scales.size(); ++i)
    scales[i] = scaleFor(scales[i]);
  for (int64_t i = 0; i < x.size(); ++i)
    codes[i] = scale(i) > 0 ? round(x[i] / scale(i)) : 0;
  return {codes, scales};
}

Tensors pc::encode(EncodeOp op, Inputs in, const Shape &ofScales) {
  if (op.getIsLinear())
    return encodeByMagnitude(
        *in[0], ofScales, [](double x) { return x < PCRT_LEAST_SCALE ? 0 : x / PCRT_LARGEST_LINEAR; },
        [](double x) { return std::round(x); });
  if (op.getIsFloat8()) {
    const pcrt_float8 format = formatOf(getElementTypeOrSelf(op.getCodes()));
    return encodeByMagnitude(
        *in[0], ofScales, [&](double x) { return pcrt_float8_scale(format, x); },
        [&](double x) { return pcrt_round_to_float8(format, x); });
  }
  const pcrt_dynamic_code code = pcrt_dynamic(op.getIsUnsigned());
  const Tensor &x = *in[0];
  auto scaleOfElement = [&](int64_t i) { return scaleOf(i, x.shape, ofScales); };
  Tensor codes(x.shape), largest(ofScales, -INFINITY), smallest(ofScales, INFINITY);
  for (int64_t i = 0; i < x.size(); ++i) {
    double &high = largest[scaleOfElement(i)], &low = smallest[scaleOfElement(i)];
    high = std::max(high, x[i]), low = std::min(low, x[i]);
  }
  for (int64_t i = 0; i < largest.size(); ++i)
    largest[i] = pcrt_scale_of(largest[i], smallest[i]);
  for (int64_t i = 0; i < x.size(); ++i) {
    double scale = largest[scaleOfElement(i)];
    codes[i] = scale == 0 ? 0 : pcrt_byte_of(&code, x[i] / scale);
  }
  return {codes, largest};
}

Tensors pc::encode(EncodeScaledOp op, Inputs in) {
  const pcrt_float8 format = formatOf(getElementTypeOrSelf(op.getCodes()));
  const double scale = (*in[1])[0];
  Tensor codes(in[0]->shape);
  for (int64_t i = 0; i < codes.size(); ++i)
    codes[i] = pcrt_round_to_float8(format, scale == 0 ? (*in[0])[i] * 0 : (*in[0])[i] / scale);
  return {codes};
}

Tensors pc::scale(Float8ScaleOp op, Inputs in) {
  Tensor scale{Shape()};
  scale[0] = pcrt_float8_scale(formatOf(op.getFormat()), (*in[0])[0]);
  return {scale};
}

//===---------------------------------------------------------------------------===//
// Addends of sums
//===---------------------------------------------------------------------------===//

namespace {
/// The blocks of a value.
struct BlocksOf {
  Shape shape;
  ArrayRef<int64_t> sides;

  /// The number of the block of an element, and the number of the element in its block.
  std::pair<int64_t, int64_t> place(int64_t element) const {
    int64_t block = 0, inBlock = 0, blocks = 1, elements = 1;
    for (size_t d = shape.size(); d-- > 0; element /= shape[d]) {
      const int64_t at = element % shape[d];
      block += at / sides[d] * blocks;
      inBlock += at % sides[d] * elements;
      blocks *= shape[d] / sides[d];
      elements *= sides[d];
    }
    return {block, inBlock};
  }
  /// Returns the elements of each block.
  std::vector<std::vector<double>> read(const Tensor &x) const {
    std::vector<std::vector<double>> values(x.size() / PCRT_STATE_BLOCK, std::vector<double>(PCRT_STATE_BLOCK));
    for (int64_t i = 0; i < x.size(); ++i) {
      auto [block, inBlock] = place(i);
      values[block][inBlock] = x[i];
    }
    return values;
  }
};

/// The codes of a block, and its scale.
struct CodedBlock {
  std::vector<double> codes;
  float scale = 0;

  double value(int64_t i) const { return codes[i] * scale; }
};
} // namespace

static CodedBlock encodeBlock(ArrayRef<double> values, WireAttr wire) {
  float largest = 0;
  for (double x : values)
    largest = std::isfinite(x) ? std::max(largest, static_cast<float>(std::abs(x))) : NAN;
  const auto largestCode = static_cast<float>(wire.largestCode());
  CodedBlock block{std::vector<double>(values.size()), largest < PCRT_LEAST_SCALE ? 0 : largest / largestCode};
  for (size_t i = 0; i < values.size() && block.scale > 0; ++i)
    block.codes[i] = std::clamp<double>(std::round(values[i] / block.scale), -largestCode, largestCode);
  return block;
}

/// Writes the bytes of a block.
static void write(const CodedBlock &block, WireAttr wire, double *bytes) {
  const int64_t pairs = PCRT_STATE_BLOCK / 2;
  if (wire.getBits() == 8)
    bytes = llvm::copy(block.codes, bytes);
  else
    for (int64_t i = 0; i < pairs; ++i)
      *bytes++ = 16 * block.codes[i + pairs] + block.codes[i];
  for (int8_t byte : std::bit_cast<std::array<int8_t, sizeof(float)>>(block.scale))
    *bytes++ = byte;
}

/// Reads the bytes of a block.
static CodedBlock read(const double *bytes, WireAttr wire) {
  const int64_t pairs = PCRT_STATE_BLOCK / 2;
  CodedBlock block{std::vector<double>(PCRT_STATE_BLOCK)};
  if (wire.getBits() == 8)
    for (double &code : block.codes)
      code = *bytes++;
  else
    for (int64_t i = 0; i < pairs; ++i) {
      const double byte = *bytes++, high = std::round(byte / 16);
      block.codes[i] = byte - 16 * high;
      block.codes[i + pairs] = high;
    }
  std::array<int8_t, sizeof(float)> scale{};
  for (int8_t &byte : scale) {
    byte = std::isnan(*bytes) ? -1 : static_cast<int8_t>(*bytes); // bytes that were never written give NaN
    ++bytes;
  }
  block.scale = std::bit_cast<float>(scale);
  return block;
}

Tensor pc::roundAddend(const Tensor &x, WireAttr wire) {
  const BlocksOf blocks{x.shape, wire.getBlock()};
  std::vector<CodedBlock> coded;
  for (ArrayRef<double> values : blocks.read(x))
    coded.push_back(encodeBlock(values, wire));
  Tensor rounded(x.shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    auto [block, inBlock] = blocks.place(i);
    rounded[i] = coded[block].value(inBlock);
  }
  return rounded;
}

Tensor pc::boundOfRounding(const Tensor &x, WireAttr wire) {
  const BlocksOf blocks{x.shape, wire.getBlock()};
  std::vector<double> bounds;
  for (ArrayRef<double> values : blocks.read(x)) {
    double largest = 0;
    for (double value : values)
      largest = std::max(largest, std::abs(value));
    bounds.push_back(std::max(largest / static_cast<double>(2 * wire.largestCode()), PCRT_LEAST_SCALE));
  }
  Tensor bound(x.shape);
  for (int64_t i = 0; i < x.size(); ++i)
    bound[i] = bounds[blocks.place(i).first];
  return bound;
}

/// In exact arithmetic, the first byte of a block is its number in `unrounded`.
Tensors pc::encodeAddend(EncodeAddendOp op, Inputs in, const EvaluateContext &context) {
  WireAttr wire = op.getWire();
  Tensor bytes(context.shapes[0]);
  double *at = bytes.data.data();
  for (std::vector<double> &values : BlocksOf{in[0]->shape, wire.getBlock()}.read(*in[0])) {
    if (context.unrounded) {
      *at = static_cast<double>(context.unrounded->size());
      context.unrounded->push_back(std::move(values));
    } else {
      write(encodeBlock(values, wire), wire, at);
    }
    at += wire.blockBytes();
  }
  return {bytes};
}

Tensors pc::decodeSum(DecodeSumOp op, Inputs in, const EvaluateContext &context) {
  WireAttr wire = op.getWire();
  const Shape &shape = context.shapes[0];
  const BlocksOf blocks{shape, wire.getBlock()};
  Tensor sum(shape);
  const int64_t addends = in[0]->shape[0], numBlocks = sum.size() / PCRT_STATE_BLOCK;
  for (int64_t addend = 0; addend < addends; ++addend) {
    std::vector<std::vector<double>> values;
    for (int64_t block = 0; block < numBlocks; ++block) {
      const double *bytes = &in[0]->data[(addend * numBlocks + block) * wire.blockBytes()];
      std::vector<double> &own = values.emplace_back(PCRT_STATE_BLOCK, NAN);
      if (!context.unrounded) {
        const CodedBlock coded = read(bytes, wire);
        for (int64_t i = 0; i < PCRT_STATE_BLOCK; ++i)
          own[i] = coded.value(i);
      } else if (*bytes >= 0 && *bytes < static_cast<double>(context.unrounded->size())) {
        own = (*context.unrounded)[static_cast<size_t>(*bytes)];
      }
    }
    for (int64_t i = 0; i < sum.size(); ++i) {
      auto [block, inBlock] = blocks.place(i);
      sum[i] += values[block][inBlock];
    }
  }
  return {sum};
}
