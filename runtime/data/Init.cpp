//===- Init.cpp - Initial values of parameters and constants --------------===//
// Normal values are Box and Muller's transform of Philox4x32-10; one counter value gives four neighbours. RoPE tables
// are computed in f32, as transformers does. Values that are read must be finite.
//===----------------------------------------------------------------------===//
#include "data/Init.h"
#include "base/Failure.h"
#include "base/Types.h"
#include "data/Codes.h"
#include "pcrt/description.h"
#include "pcrt/random.h"
#include "pcrt/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace pcrt;

std::array<uint32_t, 4> pcrt::philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  pcrt_philox(counter.data(), key[0], key[1]);
  return counter;
}

/// The four normals by Box and Muller from the four numbers of one counter value.
static std::array<float, 4> normals(uint64_t seed, uint64_t key, uint64_t block) {
  auto bits = philox({uint32_t(block), uint32_t(block >> 32), uint32_t(key), uint32_t(key >> 32)},
                     {uint32_t(seed), uint32_t(seed >> 32)});
  std::array<float, 4> result;
  for (int pair = 0; pair < 2; ++pair) {
    float uniform = float((double(bits[2 * pair]) + 1) * 0x1p-32); // in (0, 1]
    float angle = float(double(bits[2 * pair + 1]) * 0x1p-32 * 2 * M_PI);
    float radius = std::sqrt(-2 * std::log(uniform));
    result[2 * pair] = radius * std::cos(angle);
    result[2 * pair + 1] = radius * std::sin(angle);
  }
  return result;
}

float pcrt::normalAt(uint64_t seed, uint64_t key, uint64_t index) { return normals(seed, key, index / 4)[index % 4]; }

static void storeFloat(char *out, int32_t dtype, int64_t index, float value) {
  if (dtype == PCRT_BF16)
    reinterpret_cast<uint16_t *>(out)[index] = floatToBf16(value);
  else
    reinterpret_cast<float *>(out)[index] = value;
}

/// Draws the elements of a block of `parameter`.
static void drawBlock(const Parameter &parameter, const Block &block, int32_t dtype, char *out, uint64_t seed,
                      Pool &pool) {
  auto zeros = [&](int64_t blockOffset, int64_t valueOffset, int64_t count) {
    int64_t lo = std::max(parameter.zeroBegin - valueOffset, int64_t(0));
    int64_t hi = std::min(parameter.zeroEnd - valueOffset, count);
    for (int64_t i = lo; i < hi; ++i)
      storeFloat(out, dtype, blockOffset + i, 0);
  };
  struct Run {
    uint64_t key;
    int64_t blockOffset, valueOffset, count;
  };
  std::vector<Run> runs;
  for (const Part &part : parameter.parts)
    forEachRun(part.size, part.inPart(block), [&](int64_t blockOffset, int64_t valueOffset, int64_t count) {
      runs.push_back({part.key, blockOffset, valueOffset, count});
    });
  auto draw = [&](const Run &run, int64_t lo, int64_t hi) {
    std::array<float, 4> four;
    uint64_t have = ~uint64_t(0);
    bool normal = parameter.initKind == PCRT_INIT_NORMAL;
    for (int64_t i = lo; i < hi; ++i) {
      uint64_t index = uint64_t(run.valueOffset + i);
      if (normal && index / 4 != have) {
        have = index / 4;
        four = normals(seed, run.key, have);
      }
      float drawn = normal ? float(parameter.std) * four[index % 4] : 0;
      storeFloat(out, dtype, run.blockOffset + i, float(parameter.value) + drawn);
    }
  };
  // Threads share each of a few long runs, or take turns with many short ones.
  if (runs.size() < 64)
    for (const Run &run : runs)
      if (run.count < 4096)
        draw(run, 0, run.count);
      else
        pool.ranges(run.count, [&](int, int64_t lo, int64_t hi) { draw(run, lo, hi); });
  else
    pool.ranges(int64_t(runs.size()), [&](int, int64_t lo, int64_t hi) {
      for (int64_t i = lo; i < hi; ++i)
        draw(runs[i], 0, runs[i].count);
    });
  for (const Run &run : runs)
    zeros(run.blockOffset, run.valueOffset, run.count);
}

void pcrt::drawParameters(const Program &program, uint64_t seed, int rank, Device &device, Pool &pool, bool adapter) {
  for (const Parameter &parameter : program.parameters) {
    if (!parameter.isOn(program.mesh, rank) || parameter.isAdapter() != adapter)
      continue;
    if (isCode(parameter.dtype)) {
      auto draw = [&](const Block &block, float *to) {
        drawBlock(parameter, block, PCRT_F32, reinterpret_cast<char *>(to), seed, pool);
      };
      storeCodes(program, parameter, rank, device, draw, draw);
      continue;
    }
    Block block = blockOf(program.mesh, parameter.shape, parameter.layout, rank);
    HostBlock host(device, parameter.offset, block.elements() * elementBytes(parameter.dtype), HostBlock::Write);
    drawBlock(parameter, block, parameter.dtype, host.data(), seed, pool);
    host.store();
  }
}

const StoredTensor &pcrt::checkStored(const StoredTensor *stored, const std::string &name, const Dims &shape,
                                      const std::string &where, const Safetensors &all, bool mayBeCodes) {
  if (!stored) {
    std::vector<std::string> names;
    for (const auto &[other, tensor] : all.tensors())
      names.push_back(other);
    fail(PCRT_BAD_DATA, where + ": tensor '" + name + "' is missing" + whyMissing(name, names));
  }
  if (stored->shape != shape)
    fail(PCRT_BAD_DATA, stored->file + ": tensor '" + name + "' has shape " + describe(stored->shape) +
                            ", but the model needs shape " + describe(shape));
  if (!isFloatDtype(stored->dtype) && !(mayBeCodes && stored->dtype == "I8"))
    fail(PCRT_BAD_DATA, stored->file + ": tensor '" + name + "' has dtype " + stored->dtype +
                            "; supported are F32, F16, BF16 and F64");
  return *stored;
}

static bool areEqual(const StoredTensor &a, const StoredTensor &b) {
  constexpr int64_t most = 1 << 20;
  bool equal = a.dtype == b.dtype && a.shape == b.shape;
  for (int64_t at = 0; equal && at < a.bytes; at += most)
    equal = a.from->read(a.offset + at, std::min(most, a.bytes - at)) ==
            b.from->read(b.offset + at, std::min(most, b.bytes - at));
  return equal;
}

void pcrt::checkTies(const Program &program, const Safetensors &weights) {
  std::string why = untiedTensors(program.ties, [&](const std::string &name) { return weights.find(name); }, areEqual);
  if (!why.empty())
    fail(PCRT_BAD_DATA, weights.tensors().begin()->second.file + ": " + why);
}

/// Throws if one of `count` values, from element `first` of a tensor on, is not finite: a step would fail without the
/// tensor's name.
static void checkFinite(const float *values, int64_t first, int64_t count, const std::string &name,
                        const StoredTensor &stored) {
  const float *bad = std::find_if_not(values, values + count, [](float value) { return std::isfinite(value); });
  if (bad != values + count)
    fail(PCRT_BAD_DATA, stored.file + ": tensor '" + name + "' has " + (std::isnan(*bad) ? "a NaN" : "an infinity") +
                            " at element " + std::to_string(first + (bad - values)) + " (" + stored.dtype + " " +
                            describe(stored.shape) +
                            "); the file is damaged or its training diverged, so start from other weights");
}

/// Reads the parts of a block of `tensor`. Adds checksums to `sums`, unless it is null.
static void readParts(const std::vector<Part> &parts, const std::vector<const StoredTensor *> &stored,
                      const Block &block, int32_t dtype, char *out, std::vector<TensorSum> *sums) {
  std::vector<float> piece;
  bool direct = dtype == PCRT_F32;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part &part = parts[i];
    FloatReader floats(*stored[i]);
    forEachPiece(part.size, part.inPart(block), part.box,
                 [&](int64_t blockOffset, int64_t tensorOffset, int64_t count) {
                   if (!direct)
                     piece.resize(count);
                   float *values = direct ? reinterpret_cast<float *>(out) + blockOffset : piece.data();
                   floats.read(tensorOffset, count, values);
                   checkFinite(values, tensorOffset, count, part.source, *stored[i]);
                   if (sums)
                     (*sums)[i].add(tensorOffset, values, count);
                   for (int64_t i = 0; !direct && i < count; ++i)
                     storeFloat(out, dtype, blockOffset + i, piece[i]);
                 });
  }
}

void pcrt::readBlock(const Tensor &tensor, const Parameter &parameter, const std::vector<Part> &parts,
                     const std::vector<const StoredTensor *> &stored, const Program &program, int rank, Device &device,
                     std::vector<TensorSum> &sums) {
  if (!tensor.isOn(program.mesh, rank))
    return;
  std::vector<TensorSum> *written = program.writes(tensor, parameter, rank) ? &sums : nullptr;
  if (isCode(tensor.dtype)) {
    auto reader = [&](std::vector<TensorSum> *to) {
      return [&, to](const Block &block, float *values) {
        readParts(parts, stored, block, PCRT_F32, reinterpret_cast<char *>(values), to);
      };
    };
    return storeCodes(program, parameter, rank, device, reader(written), reader(nullptr));
  }
  Block block = blockOf(program.mesh, tensor.shape, tensor.layout, rank);
  HostBlock host(device, tensor.offset, block.elements() * elementBytes(tensor.dtype), HostBlock::Write);
  readParts(parts, stored, block, tensor.dtype, host.data(), written);
  host.store();
}

void pcrt::readParameters(const Program &program, const Safetensors &weights, int rank, Device &device, Pool &pool,
                          TensorSums *sums, bool adapter) {
  std::string where = weights.tensors().empty() ? "the checkpoint" : weights.tensors().begin()->second.file;
  std::vector<const Parameter *> wanted;
  for (const Parameter &parameter : program.parameters)
    if (parameter.isAdapter() == adapter)
      wanted.push_back(&parameter);
  size_t count = wanted.size();
  std::vector<std::vector<const StoredTensor *>> stored(count);
  std::vector<std::vector<TensorSum>> read(count); // several parts can be boxes of one tensor
  for (size_t i = 0; i < count; ++i)
    for (const Part &part : wanted[i]->parts) {
      stored[i].push_back(&checkStored(weights.findModelTensor(part.source), part.source, part.shape, where, weights));
      read[i].emplace_back();
    }
  pool.ranges(int64_t(count), [&](int, int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i)
      readBlock(*wanted[i], *wanted[i], wanted[i]->parts, stored[i], program, rank, device, read[i]);
  });
  for (size_t i = 0; i < count && program.replicaOf(rank) == 0; ++i) // other replicas have read the same
    for (size_t part = 0; part < read[i].size(); ++part)
      (*sums)[wanted[i]->parts[part].source] += read[i][part];
}

void pcrt::fillConstants(const Program &program, int rank, Device &device) {
  for (const Constant &constant : program.constants) {
    Block block = blockOf(program.mesh, constant.shape, constant.layout, rank);
    HostBlock host(device, constant.offset, block.elements() * elementBytes(constant.dtype), HostBlock::Write);
    for (int64_t row = 0; row < block.size[0]; ++row)
      for (int64_t column = 0; column < block.size[1]; ++column) {
        float angle = float(program.position(row + block.start[0])) * float(constant.invFreq[column + block.start[1]]);
        float value = constant.kind == "rope_cos" ? std::cos(angle) : std::sin(angle);
        storeFloat(host.data(), constant.dtype, row * block.size[1] + column, value * float(constant.scale));
      }
    host.store();
  }
}
