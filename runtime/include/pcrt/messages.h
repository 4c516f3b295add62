/* Messages between stages on devices: the multiprocessors that a communicator of NCCL may use for them, and their price
 * in the cost model. */
#ifndef PCRT_MESSAGES_H
#define PCRT_MESSAGES_H

#include <stdint.h>

/** The number of blocks (NCCL's channels, maxCTAs) for a message of `bytes`. A receive is posted long before its
 * message comes, so a short message gets few; a long one would take too long with few. */
static inline int pcrt_blocks_of_message(int64_t bytes) { return bytes >= (int64_t)4 << 20 ? 8 : 2; }

/** The bytes per second of one such block on Hopper: 36.0 to 41.4 GB/s by NCCL's own tuning (src/graph/tuning.cc of
 *  2.28.9, for trees; it has no number for sends). It has not been measured. */
static const double pcrt_block_bandwidth = 40e9;

#endif
