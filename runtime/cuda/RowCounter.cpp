//===- RowCounter.cpp - The rows that a mask on the device chooses --------===//
// A thread counts the tokens of one chunk that choose one expert. The host adds up the chunks, so that no thread waits
// for another.
//===----------------------------------------------------------------------===//
#include "cuda/RowCounter.h"
#include "comm/Rows.h"
#include "cuda/HostWork.h"

#include <algorithm>

using namespace pcrt;
using namespace pcrt::cuda;

namespace {

const char rowsPtx[] =
#include "Rows.ptx.inc"
    ;

constexpr int64_t chunkOfTokens = 256;

/// The tokens of a move by block of one member, and their chunks.
struct Shape {
  int64_t blocks, tokens, chunks, experts;

  Shape(const pcrt_move_desc &move, int members)
      : blocks(move.outer * members), tokens(move.extent / members * move.middle),
        chunks((tokens + chunkOfTokens - 1) / chunkOfTokens), experts(move.extent2) {}
  int64_t counts() const { return blocks * chunks * experts; }
};

/// The work of the kernel on the stand-in.
struct HostCount {
  const float *mask;
  int32_t *counts;
  Shape shape;
  void run() const {
    std::fill_n(counts, shape.counts(), 0);
    for (int64_t block = 0; block < shape.blocks; ++block)
      for (int64_t token = 0; token < shape.tokens; ++token)
        for (int64_t expert = 0; expert < shape.experts; ++expert)
          counts[(block * shape.chunks + token / chunkOfTokens) * shape.experts + expert] +=
              mask[(block * shape.tokens + token) * shape.experts + expert] != 0;
  }
};

} // namespace

RowCounter::RowCounter(Session &session) : session(session), memory(session) {
  if (session.standin)
    return;
  session.check(session.driver.cuModuleLoadDataEx(&module, rowsPtx, 0, nullptr, nullptr), "load the kernel of rows");
  session.check(session.driver.cuModuleGetFunction(&kernel, module, "count_rows"), "find kernel count_rows");
}

RowCounter::~RowCounter() {
  if (module)
    session.driver.cuModuleUnload(module);
}

void RowCounter::reserve(const pcrt_move_desc &move, int members) {
  most = std::max(most, Shape(move, members).counts());
}

void RowCounter::allocate() {
  const int64_t bytes = most * int64_t(sizeof(int32_t));
  onDevice = memory.allocate(bytes);
  session.nameMemory(onDevice, bytes, "the counts of rows");
  onHost = static_cast<int32_t *>(session.pinned(size_t(bytes)));
}

Result RowCounter::enqueue(const pcrt_move_desc &move, int members, const void *mask, Stream stream) {
  Shape shape(move, members);
  const int64_t bytes = shape.counts() * int64_t(sizeof(int32_t));
  if (bytes == 0)
    return Success;
  if (session.standin) {
    enqueueOnHost(session, stream, move.name,
                  HostCount{static_cast<const float *>(mask), reinterpret_cast<int32_t *>(onDevice), shape},
                  {{mask, shape.blocks * shape.tokens * shape.experts * 4, 0}, {onDevice, bytes, 1}});
  } else {
    constexpr int64_t threads = 128;
    int64_t chunk = chunkOfTokens;
    void *parameters[] = {&mask, &onDevice, &shape.blocks, &shape.tokens, &shape.experts, &chunk};
    Result result = session.driver.cuLaunchKernel(
        kernel, unsigned(std::min<int64_t>((shape.counts() + threads - 1) / threads, 1 << 20)), 1, 1, threads, 1, 1, 0,
        stream, parameters, nullptr);
    if (result != Success)
      return result;
  }
  return session.driver.cuMemcpyDtoHAsync_v2(onHost, addressOf(onDevice), size_t(bytes), stream);
}

const char *RowCounter::take(const pcrt_move_desc &move, int members) const {
  return rowCounts().take(move, members, onHost, Shape(move, members).chunks);
}
