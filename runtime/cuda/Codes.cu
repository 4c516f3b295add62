//===- Codes.cu - Kernels for sums that travel as codes of 8 bits ---------===//
// A thread encodes a block of elements, or adds up an element of all members. The build makes PTX of it.
//===----------------------------------------------------------------------===//
#include "comm/CodeBlocks.h"

#define GLOBAL extern "C" __attribute__((global)) void
#define DEVICE static inline __attribute__((device))

DEVICE int64_t firstOfThread() {
  return int64_t(__nvvm_read_ptx_sreg_ctaid_x()) * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
}
DEVICE int64_t threads() { return int64_t(__nvvm_read_ptx_sreg_nctaid_x()) * __nvvm_read_ptx_sreg_ntid_x(); }

GLOBAL encode(const float *from, char *to, int64_t elements) {
  for (int64_t block = firstOfThread(); block * PCRT_CODES_BLOCK < elements; block += threads()) {
    int64_t first = block * PCRT_CODES_BLOCK, rest = elements - first;
    pcrt::encodeBlock(from + first, rest < PCRT_CODES_BLOCK ? rest : PCRT_CODES_BLOCK,
                      to + block * pcrt::codeBlockBytes);
  }
}

GLOBAL add_decoded(const char *codes, float *to, int64_t elements, int64_t members, int64_t bytesOfMember) {
  for (int64_t i = firstOfThread(); i < elements; i += threads())
    for (int64_t member = 0; member < members; ++member)
      pcrt::decodeBlock(codes + member * bytesOfMember + i / PCRT_CODES_BLOCK * pcrt::codeBlockBytes,
                        i % PCRT_CODES_BLOCK, 1, member > 0, to + i);
}
