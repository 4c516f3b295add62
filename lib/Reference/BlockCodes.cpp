//===- BlockCodes.cpp - The meaning of codes of 8 bits with a scale per block -----------------===//
// Numbers are those of pcrt/block_codes.h. A code is its byte, read as a signed number.
//===-----------------------------------------------------------------------------------------===//
#include "pc/IR/BlockCodes.h"
#include "Evaluators.h"
#include "pcrt/block_codes.h"

using namespace mlir;
using namespace pc;

/// For each element of a value, the index of the scale of its block.
static std::vector<int64_t> scaleOfEach(ArrayRef<int64_t> shape, ArrayRef<int64_t> scales) {
  SmallVector<int64_t> block = *blockOf(shape, scales);
  std::vector<int64_t> all(numElements(shape));
  for (int64_t i = 0; i < std::ssize(all); ++i) {
    int64_t rest = i, stride = 1;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      all[i] += rest % shape[d] / block[d] * stride;
      stride *= scales[d];
    }
  }
  return all;
}

Tensors pc::decode(DecodeOp op, Inputs in) {
  const pcrt_dynamic_code code = pcrt_dynamic(op.getIsUnsigned());
  const Tensor &codes = *in[0], &scales = *in[1];
  std::vector<int64_t> scaleOf = scaleOfEach(codes.shape, scales.shape);
  Tensor result(codes.shape);
  for (int64_t i = 0; i < result.size(); ++i)
    result[i] = pcrt_number_of_byte(&code, static_cast<int8_t>(codes[i])) * scales[scaleOf[i]];
  return {result};
}

Tensors pc::encode(EncodeOp op, Inputs in, const Shape &ofScales) {
  const pcrt_dynamic_code code = pcrt_dynamic(op.getIsUnsigned());
  const Tensor &x = *in[0];
  std::vector<int64_t> scaleOf = scaleOfEach(x.shape, ofScales);
  Tensor codes(x.shape), largest(ofScales, -INFINITY), smallest(ofScales, INFINITY);
  for (int64_t i = 0; i < x.size(); ++i) {
    double &high = largest[scaleOf[i]], &low = smallest[scaleOf[i]];
    high = std::max(high, x[i]), low = std::min(low, x[i]);
  }
  for (int64_t i = 0; i < largest.size(); ++i)
    largest[i] = pcrt_scale_of(largest[i], smallest[i]);
  for (int64_t i = 0; i < x.size(); ++i) {
    double scale = largest[scaleOf[i]];
    codes[i] = scale == 0 ? 0 : pcrt_byte_of(&code, x[i] / scale);
  }
  return {codes, largest};
}
