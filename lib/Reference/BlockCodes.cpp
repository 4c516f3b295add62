//===- BlockCodes.cpp - The meaning of codes of 8 bits with a scale per block -----------------===//
// The numbers of codes are in pcrt/block_codes.h and pcrt/float8.h. A code is its byte, read as a signed number; a
// float of 8 bits is its number.
//===-----------------------------------------------------------------------------------------===//
#include "pc/IR/BlockCodes.h"
#include "Evaluators.h"
#include "pcrt/block_codes.h"
#include "pcrt/float8.h"

using namespace mlir;
using namespace pc;

static int64_t scaleOf(int64_t element, const Shape &shape, const Shape &scales) {
  return pcrt_scale_of_element(element, static_cast<int32_t>(shape.size()), shape.data(), scales.data());
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
    const pcrt_float8 format = isa<Float8E4M3FNType>(getElementTypeOrSelf(op.getCodes())) ? pcrt_e4m3() : pcrt_e5m2();
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
