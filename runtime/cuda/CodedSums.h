//===- CodedSums.h - Sums between devices as codes of 8 bits --------------===//
// The delta of a round of local SGD may be sent as codes (pcrt/codes.h). A kernel encodes it, an all_gather moves the
// codes of all members, and a kernel decodes and adds them. A CPU computes the same bits (comm/Codes.h).
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_CODEDSUMS_H
#define PCRT_CUDA_CODEDSUMS_H

#include "cuda/DeviceComm.h"
#include "cuda/Session.h"

#include <map>

namespace pcrt::cuda {

/// Carries out the sums with codes of one rank. The object owns the descriptors of the gathers of these sums, which a
/// transport may keep.
class CodedSums {
public:
  explicit CodedSums(Session &session);
  ~CodedSums();

  /// Enqueues `move`, an all_reduce of sums of f32 with codes, on `stream`. `memory` is the memory of its codes. On
  /// PCRT_INTERNAL, `result` is the driver's error, or Success if comm.error() has the message.
  pcrt_status enqueue(DeviceComm &comm, const pcrt_move_desc &move, const Group &group, const void *in, void *out,
                      char *memory, Stream stream);
  Result result = Success;

private:
  Result encode(const void *from, void *to, int64_t elements, const char *name, Stream stream);
  Result addDecoded(const void *codes, void *to, int64_t elements, int64_t members, const char *name, Stream stream);

  Session &session;
  Module module = nullptr;
  Function encodeKernel = nullptr, addKernel = nullptr;
  std::map<const pcrt_move_desc *, pcrt_move_desc> gathers;
};

} // namespace pcrt::cuda

#endif // PCRT_CUDA_CODEDSUMS_H
