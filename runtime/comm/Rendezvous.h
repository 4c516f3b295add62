//===- Rendezvous.h - How ranks find their shared file without pc-run -----===//
// Rank 0 creates the file and hands its descriptor to the others over a socket in Linux's abstract namespace, named
// after the run (MASTER_ADDR:MASTER_PORT, or the job of mpirun or srun). Nothing appears in any file system, and the
// launcher's own port stays free.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_RENDEZVOUS_H
#define PCRT_COMM_RENDEZVOUS_H

#include "comm/Environment.h"
#include "pcrt/pcrt.h"

namespace pcrt {

/// The descriptor of the shared file of `place.run`, in `fd`. Waits for the other ranks up to timeoutSeconds().
pcrt_status meet(const Place &place, int *fd, std::string *error);

} // namespace pcrt

#endif // PCRT_COMM_RENDEZVOUS_H
