/* The functions that the stand-in for CUDA's libraries exports besides theirs.
 *
 * libpc_standin.so is a test device: one library with the symbols of the CUDA driver, cuBLASLt, cuDNN and NCCL that the
 * runtime's tables list. Streams are queues; work runs on the host when a thread waits, in any order that the program's
 * own events allow. README.md in this folder says what it checks and what it cannot show.
 */
#ifndef PC_STANDIN_H
#define PC_STANDIN_H

#include "pcrt/standin_hook.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The functions of the hook; pcrt/standin_hook.h describes them. */
void pc_standin_enqueue(void *stream, const char *name, void (*fn)(void *), void *closure, void (*destroy)(void *),
                        const pc_standin_access *accesses, int n);
void pc_standin_label(const char *label);
void pc_standin_name_memory(const void *begin, int64_t bytes, const char *name);
void pc_standin_polled(const void *begin, int64_t bytes);

/* ---- for tests ---- */

/** The number of reports so far, and the text of one of them, or null past the end. */
int pc_standin_reports(void);
const char *pc_standin_report(int index);

/** Forgets all work, reports and sticky errors; memory, modules, streams and events stay. `seed` as in
 *  PC_STANDIN_SEED. */
void pc_standin_reset(uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
