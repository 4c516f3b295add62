/* What the stand-in for CUDA's libraries exports beside their functions.
 *
 * libpc_standin.so is a test device: one library with the symbols of the CUDA driver, cuBLASLt, cuDNN and
 * NCCL that the runtime's tables ask for. Streams are queues; work runs on the host, when somebody waits,
 * in any order that the program's own events allow. README.md here says what it checks and cannot show.
 */
#ifndef PC_STANDIN_H
#define PC_STANDIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PC_STANDIN_ABI 1

/** PC_STANDIN_ABI. Only the stand-in has this symbol: it tells the runtime to load host images. */
int pc_standin_abi(void);

/** Bytes [begin, begin + bytes) that a piece of work reads or (write = 1) writes. */
typedef struct pc_standin_access {
  const void *begin;
  int64_t bytes;
  int write;
} pc_standin_access;

/** Appends work to a stream (a CUstream), or a node to the graph that it captures. `fn(closure)` runs once, or once
 *  per launch of the graph; `destroy(closure)` when nothing can run it any more. */
void pc_standin_enqueue(void *stream, const char *name, void (*fn)(void *), void *closure, void (*destroy)(void *),
                        const pc_standin_access *accesses, int n);

/** Names the source of what this thread enqueues from now on ("h.0.mlp.c_fc"), for reports; null: nothing. */
void pc_standin_label(const char *label);

/** Names memory for reports ("arena of rank 1"). */
void pc_standin_name_memory(const void *begin, int64_t bytes, const char *name);

/** The host polls this memory for marks of progress: it may look without waiting, and writers need no order. */
void pc_standin_polled(const void *begin, int64_t bytes);

/* ---- for tests ---- */

/** Reports so far: their number, and the text of one of them; null past the end. */
int pc_standin_reports(void);
const char *pc_standin_report(int index);

/** Forgets all work, reports and sticky errors; memory, modules, streams and events stay. `seed` as in
 *  PC_STANDIN_SEED. */
void pc_standin_reset(uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
