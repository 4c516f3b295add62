//===- StateCodes.cpp - States in 8 bits that a checkpoint has in f32, and the reverse -----------===//
// The checkpoint's scales have the shape of its codes, divided by the sides of a block in each dim.
//===----------------------------------------------------------------------===//
#include "checkpoint/StateCodes.h"
#include "base/Failure.h"
#include "pcrt/block_codes.h"

#include <cmath>
#include <cstring>

using namespace pcrt;

/// Reads this rank's block as numbers; codes are their bytes.
std::vector<float> StoredState::read(std::vector<TensorSum> &sums) const {
  const Block own = block();
  std::vector<float> values(size_t(own.elements()), 0.0f);
  const bool sumsUp = program.writes(*saved.tensor, *saved.parameter, rank);
  for (size_t i = 0; i < stored.size(); ++i) {
    const Part &part = (*saved.parts)[i];
    FloatReader floats(*stored[i]);
    forEachPiece(part.size, part.inPart(own), part.box, [&](int64_t blockOffset, int64_t tensorOffset, int64_t count) {
      float *to = values.data() + blockOffset;
      floats.read(tensorOffset, count, to);
      if (sumsUp)
        sums[i].add(tensorOffset, to, count);
      if (!std::all_of(to, to + count, [](float value) { return std::isfinite(value); }))
        fail(PCRT_BAD_DATA, stored[i]->file + ": tensor '" + saved.nameOf(part) +
                                "' has numbers that are not finite; the file is damaged or its training diverged, so "
                                "start from other weights");
    });
  }
  return values;
}

static int64_t scaleOf(int64_t element, const Dims &shape, const Dims &scales) {
  return pcrt_scale_of_element(element, int32_t(shape.size()), shape.data(), scales.data());
}

/// Scales of consecutive elements of a row of a tensor are consecutive or equal.
void StoredState::decode(const std::vector<const StoredTensor *> &scales, std::vector<TensorSum> &sums) const {
  const Block own = block();
  std::vector<float> values = read(sums);
  const pcrt_dynamic_code code = pcrt_dynamic(pcrt_state_is_unsigned(saved.tensor->name.c_str()));
  float numbers[256];
  for (int byte = -128; byte < 128; ++byte)
    numbers[byte + 128] = pcrt_number_of_byte(&code, int8_t(byte));
  for (size_t i = 0; i < stored.size(); ++i) {
    const Dims &shape = stored[i]->shape, &counts = scales[i]->shape;
    std::vector<float> all(size_t(product(counts)));
    loadFloats(*scales[i], 0, int64_t(all.size()), all.data());
    const int64_t row = shape.back(), side = row / counts.back();
    const Part &part = (*saved.parts)[i];
    forEachPiece(part.size, part.inPart(own), part.box, [&](int64_t blockOffset, int64_t tensorOffset, int64_t count) {
      float *at = values.data() + blockOffset;
      for (int64_t end = tensorOffset + count; tensorOffset < end;) {
        int64_t column = tensorOffset % row, last = std::min(row, column + end - tensorOffset);
        const float *scale = all.data() + scaleOf(tensorOffset - column, shape, counts);
        tensorOffset += last - column;
        for (; column < last; ++column, ++at)
          *at = numbers[int(*at) + 128] * scale[column / side];
      }
    });
  }
  HostBlock to(device, saved.tensor->offset, own.elements() * 4, HostBlock::Write);
  memcpy(to.data(), values.data(), values.size() * sizeof(float));
  to.store();
}

void StoredState::copy(std::vector<TensorSum> &sums) const {
  std::vector<float> values = read(sums);
  HostBlock to(device, saved.tensor->offset, int64_t(values.size()), HostBlock::Write);
  std::transform(values.begin(), values.end(), to.data(), [](float byte) { return char(int8_t(byte)); });
  to.store();
}

void StoredState::encode(const State &scales, std::vector<TensorSum> &sums) const {
  const Block own = block(), ofScales = blockOf(program.mesh, scales.shape, scales.layout, rank);
  for (size_t dim = 0; dim < own.size.size(); ++dim)
    if (own.size[dim] * scales.shape[dim] != ofScales.size[dim] * saved.tensor->shape[dim] ||
        own.start[dim] * scales.shape[dim] != ofScales.start[dim] * saved.tensor->shape[dim])
      fail(PCRT_INFEASIBLE, "the checkpoint has '" + saved.tensor->name + "' of " + saved.parameter->name +
                                " in f32, and this plan splits its scales and its codes differently; compile with "
                                "--states=f32, or use another plan for the first steps");
  std::vector<float> values = read(sums), largest(size_t(ofScales.elements()), -INFINITY),
                     smallest(largest.size(), INFINITY);
  auto scaleOfElement = [&](size_t i) { return size_t(scaleOf(int64_t(i), own.size, ofScales.size)); };
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t at = scaleOfElement(i);
    largest[at] = std::max(largest[at], values[i]);
    smallest[at] = std::min(smallest[at], values[i]);
  }
  for (size_t i = 0; i < largest.size(); ++i)
    largest[i] = float(pcrt_scale_of(largest[i], smallest[i]));
  const pcrt_dynamic_code code = pcrt_dynamic(pcrt_state_is_unsigned(saved.tensor->name.c_str()));
  HostBlock to(device, saved.tensor->offset, own.elements(), HostBlock::Write);
  for (size_t i = 0; i < values.size(); ++i) {
    const float scale = largest[scaleOfElement(i)];
    to.data()[i] = scale == 0 ? char(0) : char(pcrt_byte_of(&code, values[i] / scale));
  }
  to.store();
  HostBlock toScales(device, scales.offset, int64_t(largest.size()) * 4, HostBlock::Write);
  memcpy(toScales.data(), largest.data(), largest.size() * sizeof(float));
  toScales.store();
}
