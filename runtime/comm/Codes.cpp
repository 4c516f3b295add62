//===- Codes.cpp - Sums whose addends travel as codes of 8 bits -----------===//
// The code of a block is one f32 scale and a signed byte per element. A sum is an all_gather of codes, followed by
// local additions. A block whose scale underflows decodes to zeros, and one with a value that is not finite to NaNs.
//===----------------------------------------------------------------------===//
#include "comm/Codes.h"
#include "pcrt/codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace pcrt;

static constexpr int64_t blockSize = PCRT_CODES_BLOCK, wordsOfBlock = 1 + blockSize / 4;
static constexpr float largestCode = 127;

static int64_t numBlocks(int64_t elements) { return (elements + blockSize - 1) / blockSize; }

static void encodeBlock(const float *from, int64_t count, char *to) {
  float largest = 0, sum = 0; // the sum of what is not finite is not finite, and its difference to itself a NaN
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(from[i]));
    sum += from[i] - from[i];
  }
  float scale = sum == 0 ? largest / largestCode : std::numeric_limits<float>::quiet_NaN();
  memcpy(to, &scale, sizeof scale);
  auto *codes = reinterpret_cast<int8_t *>(to + sizeof scale);
  memset(codes, 0, (count + 3) / 4 * 4);
  if (!(scale > 0)) // all zeros, too small for a scale, or not finite
    return;
  constexpr float whole = 3 << 22; // floats of this size are whole numbers, so that adding it rounds to nearest
  for (int64_t i = 0; i < count; ++i)
    codes[i] = int8_t(std::clamp(from[i] / scale, -largestCode, largestCode) + whole - whole);
}

void pcrt::encode(const float *from, int64_t elements, void *codes, const ParallelFor &parallelFor) {
  auto *to = static_cast<char *>(codes);
  parallelFor(numBlocks(elements), [&](int64_t lo, int64_t hi) {
    for (int64_t block = lo; block < hi; ++block)
      encodeBlock(from + block * blockSize, std::min(blockSize, elements - block * blockSize),
                  to + 4 * wordsOfBlock * block);
  });
}

void pcrt::addDecoded(const void *codes, int members, int64_t elements, float *out, const ParallelFor &parallelFor) {
  const auto *all = static_cast<const char *>(codes);
  int64_t bytesOfMember = 4 * pcrt_code_words(elements);
  parallelFor(numBlocks(elements), [&](int64_t lo, int64_t hi) {
    for (int64_t block = lo; block < hi; ++block) {
      int64_t count = std::min(blockSize, elements - block * blockSize);
      float *to = out + block * blockSize;
      for (int member = 0; member < members; ++member) {
        const char *at = all + member * bytesOfMember + 4 * wordsOfBlock * block;
        float scale;
        memcpy(&scale, at, sizeof scale);
        const auto *from = reinterpret_cast<const int8_t *>(at + sizeof scale);
        for (int64_t i = 0; i < count; ++i) {
          float product = float(from[i]) * scale; // rounded before it is added
          to[i] = member ? to[i] + product : product;
        }
      }
    }
  });
}

pcrt_status pcrt::sumByCodes(Comm &comm, const pcrt_move_desc &desc, const Group &group, const void *in, void *out,
                             char *memory, const ParallelFor &parallelFor) {
  int64_t elements = desc.outer * desc.extent * desc.inner;
  char *all = memory + pcrt_codes_of_all(elements);
  encode(static_cast<const float *>(in), elements, memory, parallelFor);
  pcrt_move_desc gather = desc;
  gather.kind = PCRT_ALL_GATHER;
  gather.dtype = PCRT_I32;
  gather.outer = gather.inner = 1;
  gather.extent = pcrt_code_words(elements) * group.size();
  gather.codes = 0;
  PCRT_TRY(comm.move(gather, group, memory, all, parallelFor));
  addDecoded(all, group.size(), elements, static_cast<float *>(out), parallelFor);
  return PCRT_OK;
}
