/* random.h - the random generator of compiled programs, interpreter and runtime, which must draw the same bits. */
#ifndef PCRT_RANDOM_H
#define PCRT_RANDOM_H

#include <stdint.h>

/** Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) of `counter` with a key of two
 * words, in place. Its constants are the two factors, and the increments of the key's words in each of the rounds. */
#define PCRT_PHILOX_ROUNDS 10
#define PCRT_PHILOX_FACTOR0 0xD2511F53u
#define PCRT_PHILOX_FACTOR1 0xCD9E8D57u
#define PCRT_PHILOX_KEY0 0x9E3779B9u
#define PCRT_PHILOX_KEY1 0xBB67AE85u
static inline void pcrt_philox(uint32_t *counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < PCRT_PHILOX_ROUNDS; ++round) {
    uint64_t first = (uint64_t)PCRT_PHILOX_FACTOR0 * counter[0], second = (uint64_t)PCRT_PHILOX_FACTOR1 * counter[2];
    counter[0] = (uint32_t)(second >> 32) ^ counter[1] ^ key0;
    counter[1] = (uint32_t)second;
    counter[2] = (uint32_t)(first >> 32) ^ counter[3] ^ key1;
    counter[3] = (uint32_t)first;
    key0 += PCRT_PHILOX_KEY0;
    key1 += PCRT_PHILOX_KEY1;
  }
}

/** The last word of a dropout's counter is this plus its key; that of initial values is less than the second one. */
#define PCRT_RANDOM_DROPS 0x80000000u
/** The last word of the counter by which a token is chosen. */
#define PCRT_RANDOM_SAMPLES 0x40000000u

#endif
