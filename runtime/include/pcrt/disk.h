/* What a program that keeps values on disk and its runtime agree on, in addition to moves.h. */
#ifndef PCRT_DISK_H
#define PCRT_DISK_H

#include <stdint.h>

/** Bytes at the end of the host's arena through which a device copies to the disk and from it: half of them each way.
 */
#define PCRT_DISK_RING ((int64_t)32 << 20)

#endif
