//===- BlockCodes.cpp - The meaning of codes of 8 bits with a scale per block -----------------===//
// The numbers of codes are in pcrt/block_codes.h. A code is its byte, read as a signed number.
//===-----------------------------------------------------------------------------------------===//
#include "pc/IR/BlockCodes.h"
#include "Evaluators.h"
#include "pcrt/block_codes.h"

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
    auto byte = static_cast<int8_t>(codes[i]);
    result[i] =
        (op.getIsLinear() ? byte : pcrt_number_of_byte(&code, byte)) * scales[scaleOf(i, codes.shape, scales.shape)];
  }
  return {result};
}

/// Integers from -127 to 127.
static Tensors encodeLinear(const Tensor &x, const Shape &ofScales) {
  Tensor codes(x.shape), scales(ofScales);
  auto scale = [&](int64_t i) -> double & { return scales[scaleOf(i, x.shape, ofScales)]; };
  for (int64_t i = 0; i < x.size(); ++i)
    scale(i) = std::isfinite(x[i]) ? std::max(scale(i), std::abs(x[i])) : NAN;
  for (int64_t i = 0; i < scales.size(); ++i)
    scales[i] = scales[i] < PCRT_LEAST_SCALE ? 0 : scales[i] / PCRT_LARGEST_LINEAR;
  for (int64_t i = 0; i < x.size(); ++i)
    codes[i] = scale(i) > 0 ? std::round(x[i] / scale(i)) : 0;
  return {codes, scales};
}

Tensors pc::encode(EncodeOp op, Inputs in, const Shape &ofScales) {
  if (op.getIsLinear())
    return encodeLinear(*in[0], ofScales);
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
