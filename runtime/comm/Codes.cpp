//===- Codes.cpp - Sums whose addends travel as codes of 8 bits -----------===//
// The code of a block is one f32 scale and a signed byte per element. A sum is an all_gather of codes, followed by
// local additions. A block whose scale underflows decodes to zeros, and one with a value that is not finite to NaNs.
//===----------------------------------------------------------------------===//
#include "comm/Codes.h"
#include "comm/CodeBlocks.h"
#include "pcrt/codes.h"

#include <algorithm>

using namespace pcrt;

static constexpr int64_t blockSize = PCRT_CODES_BLOCK;

static int64_t numBlocks(int64_t elements) { return (elements + blockSize - 1) / blockSize; }

void pcrt::encode(const float *from, int64_t elements, void *codes, const ParallelFor &parallelFor) {
  auto *to = static_cast<char *>(codes);
  parallelFor(numBlocks(elements), [&](int64_t lo, int64_t hi) {
    for (int64_t block = lo; block < hi; ++block)
      encodeBlock(from + block * blockSize, std::min(blockSize, elements - block * blockSize),
                  to + codeBlockBytes * block);
  });
}

void pcrt::addDecoded(const void *codes, int members, int64_t elements, float *out, const ParallelFor &parallelFor) {
  const auto *all = static_cast<const char *>(codes);
  int64_t bytesOfMember = 4 * pcrt_code_words(elements);
  parallelFor(numBlocks(elements), [&](int64_t lo, int64_t hi) {
    for (int64_t block = lo; block < hi; ++block) {
      int64_t count = std::min(blockSize, elements - block * blockSize);
      for (int member = 0; member < members; ++member)
        decodeBlock(all + member * bytesOfMember + codeBlockBytes * block, 0, count, member > 0,
                    out + block * blockSize);
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
