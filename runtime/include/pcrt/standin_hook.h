/* The only interface between the runtime and a stand-in for CUDA's libraries besides those libraries' own functions.
 *
 * A stand-in exports `pc_standin_hook`; no real driver does, and then the runtime calls none of these functions. They
 * make the stand-in's reports readable and its checks exact; they never change what is computed.
 */
#ifndef PCRT_STANDIN_HOOK_H
#define PCRT_STANDIN_HOOK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes [begin, begin + bytes) that a piece of work reads or (write = 1) writes. */
typedef struct pc_standin_access {
  const void *begin;
  int64_t bytes;
  int write;
} pc_standin_access;

/** Functions may be null: a stand-in that is only a driver has none. */
typedef struct pc_standin_functions {
  /** Appends work to a stream (a CUstream), or a node to the graph that it captures: a host's kernel. `fn(closure)`
   * runs once, or once per launch of the graph; `destroy(closure)` when nothing can run it any more. */
  void (*enqueue)(void *stream, const char *name, void (*fn)(void *), void *closure, void (*destroy)(void *),
                  const pc_standin_access *accesses, int n);
  /** Names the source of the work that this thread enqueues from now on ("h.0.mlp.c_fc"), for reports; null: none. */
  void (*label)(const char *label);
  /** Names memory for reports ("arena of rank 1"). */
  void (*name_memory)(const void *begin, int64_t bytes, const char *name);
  /** Says that the host polls this memory for marks of progress: it may read without waiting, and writers need no
   * order.
   */
  void (*polled)(const void *begin, int64_t bytes);
} pc_standin_functions;

const pc_standin_functions *pc_standin_hook(void);

#ifdef __cplusplus
}
#endif
#endif
