/* Messages between stages on devices: what a communicator of NCCL may take for them, which the cost model prices. */
#ifndef PCRT_MESSAGES_H
#define PCRT_MESSAGES_H

#include <stdint.h>

/** Blocks (NCCL's channels, maxCTAs) of a message of `bytes`. A receive is posted long before its message comes, so a
 *  short one takes few; long ones would wait for their bytes. */
static inline int pcrt_blocks_of_message(int64_t bytes) { return bytes >= (int64_t)4 << 20 ? 8 : 2; }

/** Bytes per second of one such block on Hopper: 36.0 to 41.4 GB/s by NCCL's own tuning (src/graph/tuning.cc of 2.28.9,
 *  for trees; it has no number for sends). Not measured. */
static const double pcrt_block_bandwidth = 40e9;

#endif
