//===- Codes.cpp - Weights as codes of 8 or 4 bits -------------------------===//
// The scales of a rank may belong to other rows than its codes, if a plan splits the two differently. So both are
// computed separately, each from as many elements as its scales cover.
//===----------------------------------------------------------------------===//
#include "data/Codes.h"
#include "base/Failure.h"
#include "base/Types.h"
#include "pcrt/description.h"

#include <cmath>
#include <cstring>

using namespace pcrt;

/// Calls f(element, scale) for each element of a block of `size`, in order, with the index of its scale. Scales have
/// the dims `kept`.
template <typename F> static void forEachScale(const Dims &size, const std::vector<int64_t> &kept, F f) {
  std::vector<int64_t> stride(size.size()), index(size.size());
  for (auto [dim, next] = std::pair(int64_t(kept.size()) - 1, int64_t(1)); dim >= 0; --dim) {
    stride[size_t(kept[size_t(dim)])] = next;
    next *= size[size_t(kept[size_t(dim)])];
  }
  const int64_t inner = size.back(), step = stride.back(), elements = product(size);
  for (int64_t element = 0, scale = 0; element < elements;) {
    for (int64_t i = 0; i < inner; ++i)
      f(element + i, scale + i * step);
    element += inner;
    for (int64_t dim = int64_t(size.size()) - 2; dim >= 0; --dim) {
      const size_t d = size_t(dim);
      scale += stride[d];
      if (++index[d] < size[d])
        break;
      scale -= size[d] * stride[d];
      index[d] = 0;
    }
  }
}

namespace {

/// The matrix of codes of one parameter.
struct CodedMatrix {
  const Parameter &parameter;
  const State &scales;
  const float most; ///< the largest code

  /// A block with all elements that the scales of the dims of `block` cover.
  Block covered(const Block &block) const {
    Block all{Dims(parameter.shape.size(), 0), parameter.shape};
    for (int64_t dim : scales.dims) {
      all.start[size_t(dim)] = block.start[size_t(dim)];
      all.size[size_t(dim)] = block.size[size_t(dim)];
    }
    return all;
  }

  std::vector<float> scalesOf(const Block &block, const float *values) const {
    int64_t count = 1;
    for (int64_t dim : scales.dims)
      count *= block.size[size_t(dim)];
    std::vector<float> result(size_t(count), 0.0f);
    forEachScale(block.size, scales.dims, [&](int64_t element, int64_t scale) {
      result[size_t(scale)] = std::max(result[size_t(scale)], std::abs(values[element]));
    });
    for (float &scale : result)
      scale /= most;
    return result;
  }

  /// The nearest code; 0 if all elements are 0. A sum with `shift` has no bits for fractions, so it is rounded to an
  /// integer, ties to even. This takes two instructions, much less than a call of nearbyint.
  int8_t codeOf(float value, float scale) const {
    constexpr float shift = 0x1.8p23f;
    const float code = scale > 0 ? value / scale + shift - shift : 0;
    return int8_t(std::min(std::max(code, -most), most));
  }

  /// Writes the codes of a block. Codes i and i + group / 2 of a group of 4 bits share a byte.
  void write(const Block &block, const float *values, const std::vector<float> &scale, char *to) const {
    if (parameter.dtype == PCRT_I8)
      return forEachScale(block.size, scales.dims,
                          [&](int64_t i, int64_t at) { to[i] = char(codeOf(values[i], scale[size_t(at)])); });
    int64_t inner = 1, dim = int64_t(block.size.size()) - 1;
    for (; std::find(scales.dims.begin(), scales.dims.end(), dim) != scales.dims.end(); --dim)
      inner *= block.size[size_t(dim)];
    const int64_t half = block.size[size_t(dim)] / 2;
    std::fill_n(to, block.elements() / 2, char(0));
    forEachScale(block.size, scales.dims, [&](int64_t i, int64_t at) {
      const int64_t number = i / inner % (2 * half);
      const int code = codeOf(values[i], scale[size_t(at)]) & 15;
      to[(i / inner / (2 * half) * half + number % half) * inner + i % inner] |= char(number < half ? code : code << 4);
    });
  }
};

} // namespace

static bool areEqual(const Block &a, const Block &b) { return a.start == b.start && a.size == b.size; }

/// A block of scales as a block of the parameter's dims.
static Block inParameter(const Block &block, const CodedMatrix &matrix) {
  Block result{Dims(matrix.parameter.shape.size(), 0), matrix.parameter.shape};
  for (size_t i = 0; i < matrix.scales.dims.size(); ++i) {
    result.start[size_t(matrix.scales.dims[i])] = block.start[i];
    result.size[size_t(matrix.scales.dims[i])] = block.size[i];
  }
  return result;
}

void pcrt::storeCodes(const Program &program, const Parameter &parameter, int rank, Device &device,
                      const BlockReader &own, const BlockReader &other) {
  const State *state = program.stateOf(parameter, PCRT_SCALE);
  if (!state)
    fail(PCRT_INTERNAL, parameter.name + " has codes without scales");
  const CodedMatrix matrix{parameter, *state, parameter.dtype == PCRT_I8 ? 127.0f : 7.0f};
  const Block block = blockOf(program.mesh, parameter.shape, parameter.layout, rank), rows = matrix.covered(block);
  std::vector<float> values(size_t(block.elements()));
  own(block, values.data());
  auto readScales = [&](const Block &covered) {
    std::vector<float> all(size_t(covered.elements()));
    other(covered, all.data());
    return matrix.scalesOf(covered, all.data());
  };
  std::vector<float> scale = areEqual(rows, block) ? matrix.scalesOf(block, values.data()) : readScales(rows);
  HostBlock codes(device, parameter.offset, bytesOf(parameter.dtype, block.elements()), HostBlock::Write);
  matrix.write(block, values.data(), scale, codes.data());
  codes.store();
  if (!state->isOn(program.mesh, rank))
    return;
  const Block ofScales = blockOf(program.mesh, state->shape, state->layout, rank);
  if (Block covered = inParameter(ofScales, matrix); !areEqual(covered, rows))
    scale = readScales(covered);
  HostBlock to(device, state->offset, ofScales.elements() * 4, HostBlock::Write);
  memcpy(to.data(), scale.data(), scale.size() * sizeof(float));
  to.store();
}
