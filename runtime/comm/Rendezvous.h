//===- Rendezvous.h - Ranks find their shared file without pc-run ---------===//
// Rank 0 creates the shared file and passes its descriptor to the other ranks through a socket in Linux's abstract
// namespace. The socket is named after the run (MASTER_ADDR:MASTER_PORT, or the job of mpirun or srun). Nothing appears
// in any file system, and the launcher's own port stays free.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_RENDEZVOUS_H
#define PCRT_COMM_RENDEZVOUS_H

#include "comm/Environment.h"
#include "pcrt/pcrt.h"

namespace pcrt {

/// Sets `fd` to the descriptor of the shared file of `place.run`. Waits for the other ranks up to timeoutSeconds(). On
/// failure, `error` says which ranks did not start, or why this one was refused.
pcrt_status meet(const Place &place, int *fd, std::string *error);

} // namespace pcrt

#endif // PCRT_COMM_RENDEZVOUS_H
