//===- CodedSums.cpp - Sums between devices as codes of 8 bits ------------===//
// The PTX of Codes.cu is part of the runtime. On the stand-in, the functions of the host do the work of the kernels.
//===----------------------------------------------------------------------===//
#include "cuda/CodedSums.h"
#include "comm/Codes.h"
#include "cuda/HostWork.h"
#include "pcrt/codes.h"

#include <algorithm>

using namespace pcrt;
using namespace pcrt::cuda;

namespace {

const char codesPtx[] =
#include "Codes.ptx.inc"
    ;

/// The functions that do the work of the two kernels on the stand-in.
struct HostEncode {
  const float *from;
  char *to;
  int64_t elements;
  void run() const { encode(from, elements, to, ParallelFor()); }
};
struct HostAdd {
  const char *codes;
  float *to;
  int64_t elements, members;
  void run() const { addDecoded(codes, int(members), elements, to, ParallelFor()); }
};

constexpr unsigned threads = 128;

unsigned blocksFor(int64_t items) {
  return unsigned(std::clamp<int64_t>((items + threads - 1) / threads, 1, int64_t(1) << 20));
}

} // namespace

CodedSums::CodedSums(Session &session) : session(session) {
  if (session.standin)
    return;
  session.check(session.driver.cuModuleLoadDataEx(&module, codesPtx, 0, nullptr, nullptr), "load the kernels of codes");
  session.check(session.driver.cuModuleGetFunction(&encodeKernel, module, "encode"), "find kernel encode");
  session.check(session.driver.cuModuleGetFunction(&addKernel, module, "add_decoded"), "find kernel add_decoded");
}

CodedSums::~CodedSums() {
  if (module)
    session.driver.cuModuleUnload(module);
}

Result CodedSums::encode(const void *from, void *to, int64_t elements, const char *name, Stream stream) {
  if (session.standin) {
    enqueueOnHost(session, stream, name,
                  HostEncode{static_cast<const float *>(from), static_cast<char *>(to), elements},
                  {{from, elements * 4, 0}, {to, 4 * pcrt_code_words(elements), 1}});
    return Success;
  }
  void *parameters[] = {&from, &to, &elements};
  int64_t codeBlocks = (elements + PCRT_CODES_BLOCK - 1) / PCRT_CODES_BLOCK;
  return session.driver.cuLaunchKernel(encodeKernel, blocksFor(codeBlocks), 1, 1, threads, 1, 1, 0, stream, parameters,
                                       nullptr);
}

Result CodedSums::addDecoded(const void *codes, void *to, int64_t elements, int64_t members, const char *name,
                             Stream stream) {
  if (session.standin) {
    enqueueOnHost(session, stream, name,
                  HostAdd{static_cast<const char *>(codes), static_cast<float *>(to), elements, members},
                  {{codes, 4 * members * pcrt_code_words(elements), 0}, {to, elements * 4, 1}});
    return Success;
  }
  int64_t bytesOfMember = 4 * pcrt_code_words(elements);
  void *parameters[] = {&codes, &to, &elements, &members, &bytesOfMember};
  return session.driver.cuLaunchKernel(addKernel, blocksFor(elements), 1, 1, threads, 1, 1, 0, stream, parameters,
                                       nullptr);
}

pcrt_status CodedSums::enqueue(DeviceComm &comm, const pcrt_move_desc &move, const Group &group, const void *in,
                               void *out, char *memory, Stream stream) {
  const int64_t elements = move.outer * move.extent * move.inner;
  char *all = memory + pcrt_codes_of_all(elements);
  pcrt_move_desc &gather = gathers.try_emplace(&move, move).first->second;
  gather.kind = PCRT_ALL_GATHER;
  gather.dtype = PCRT_I32;
  gather.outer = gather.inner = 1;
  gather.extent = pcrt_code_words(elements) * group.size();
  gather.codes = 0;
  result = encode(in, memory, elements, move.name, stream);
  if (result != Success)
    return PCRT_INTERNAL;
  const void *from = memory;
  void *to = all;
  PCRT_TRY(comm.enqueue(&gather, 1, group, &from, &to, stream));
  result = addDecoded(all, out, elements, group.size(), move.name, stream);
  return result == Success ? PCRT_OK : PCRT_INTERNAL;
}
