/* The C ABI between a compiled program and the runtime.
 *
 * A program is one object file: constant tables (kernels, matrix products, moves), a JSON description
 * of its buffers, and a function that runs one step by calling the functions below. Nothing here knows
 * MLIR or LLVM. Every call returns a pcrt_status; the step returns the first one that is not PCRT_OK.
 */
#ifndef PCRT_PCRT_H
#define PCRT_PCRT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PCRT_ABI_VERSION 1

/** Status values are the exit codes of every tool of the project. */
typedef enum pcrt_status {
  PCRT_OK = 0,
  PCRT_INTERNAL = 1,
  PCRT_USAGE = 2,
  PCRT_BAD_INPUT = 3,
  PCRT_INFEASIBLE = 4,
  PCRT_VERIFICATION = 5,
  PCRT_RESOURCE = 6,
  PCRT_PEER_LOST = 7,
  PCRT_TIMEOUT = 8,
  PCRT_BAD_DATA = 9,
  PCRT_NON_FINITE = 10,
} pcrt_status;

typedef enum pcrt_dtype { PCRT_F32 = 0, PCRT_BF16 = 1, PCRT_I32 = 2 } pcrt_dtype;
typedef enum pcrt_reduction { PCRT_SUM = 0, PCRT_MAX = 1 } pcrt_reduction;

typedef enum pcrt_move_kind {
  PCRT_ALL_REDUCE = 0,
  PCRT_ALL_GATHER = 1,
  PCRT_REDUCE_SCATTER = 2,
  PCRT_ALL_TO_ALL = 3,
  PCRT_SLICE = 4, /* own block of a whole value; no traffic */
  PCRT_MASK = 5,  /* coordinate 0 keeps the value, the others hold zeros; no traffic */
  PCRT_PAD = 6,   /* own block inside zeros; no traffic */
} pcrt_move_kind;

/** One generated kernel. Its work is `items` independent items; the runtime calls it with disjoint ranges
 *  [lo, hi) from the threads of its pool. `args` are the buffers (and addresses of scalars), in the order that
 *  the compiler chose; `scratch` is this thread's own memory of at least `scratch_bytes`, 64-byte aligned.
 *  A result never depends on how items are cut into ranges. A kernel returns 0, or 1 + the index of the
 *  first bad element it met (a token id out of range; the runtime names `name` and exits with 9). */
typedef int64_t (*pcrt_kernel_fn)(void *const *args, int64_t lo, int64_t hi, void *scratch);

typedef struct pcrt_kernel {
  const char *name; /* op and source name, for messages and traces: "fusion h.0.ln_1" */
  const char *kind; /* class for the time table: elementwise, norm, attention, embedding, loss, optimizer, ... */
  pcrt_kernel_fn fn;
  int64_t items;
  int64_t scratch_bytes;
} pcrt_kernel;

/** c[b, m, n] (+)= sum_k a[b, m, k] * b[b, k, n] (+ bias[n]). Strides are in elements; one of the last two
 *  strides of each operand is 1. Accumulation is in f32 whatever the dtypes. */
typedef struct pcrt_gemm_desc {
  const char *name;
  int64_t batch, m, n, k;
  int64_t a_batch_stride, a_m_stride, a_k_stride;
  int64_t b_batch_stride, b_k_stride, b_n_stride;
  int64_t c_batch_stride, c_m_stride, c_n_stride;
  int32_t a_dtype, b_dtype, c_dtype;
  int32_t accumulate; /* 1: add to what c holds */
  int32_t has_bias;   /* 1: an f32 bias[n] is added */
} pcrt_gemm_desc;

/** A move of one value over one group of ranks. The group-global tensor is seen as [outer, extent, inner], row
 *  major, where `extent` is the full size of the moved dim (1 for all_reduce and mask: outer = elements).
 *  all_gather: in [outer, extent/n, inner] -> out [outer, extent, inner], blocks in coordinate order.
 *  reduce_scatter, slice: in [outer, extent, inner] -> out [outer, extent/n, inner].
 *  pad: in [outer, extent/n, inner] -> out [outer, extent, inner], other blocks zero.
 *  all_to_all: the tensor is [outer, extent, middle, extent2, inner]; `in` is split on extent, `out` on extent2.
 *  `in` may equal `out` for all_reduce and mask. Reductions add in coordinate order on every rank: all members get
 *  the same bits. */
typedef struct pcrt_move_desc {
  const char *name; /* op and source name: "all_reduce h.0.mlp.c_proj" */
  int32_t kind;     /* pcrt_move_kind */
  int32_t group;    /* index into pcrt_program.groups */
  int32_t dtype;
  int32_t reduction;
  int64_t outer, extent, inner;
  int64_t middle, extent2; /* all_to_all only, else 1 and 1 */
  const char *phase;       /* "forward", "backward" or "optimizer": how the traffic is booked */
} pcrt_move_desc;

/** Ranks that differ only in the coordinates of these mesh axes. The coordinate of a rank in the group is the mixed-
 *  radix number of its coordinates on the axes, first axis major. */
typedef struct pcrt_group {
  int32_t num_axes;
  int32_t axes[8]; /* indices into the mesh axes, major to minor */
} pcrt_group;

typedef struct pcrt_context pcrt_context;

typedef struct pcrt_program {
  uint32_t abi_version; /* PCRT_ABI_VERSION */
  int32_t num_mesh_axes;
  const int64_t *mesh_sizes;        /* outermost first; rank = mixed-radix number of the coordinates */
  const char *const *mesh_names;
  int32_t num_groups, num_kernels, num_gemms, num_moves;
  const pcrt_group *groups;
  const pcrt_kernel *kernels;
  const pcrt_gemm_desc *gemms;
  const pcrt_move_desc *moves;
  int64_t arena_bytes;              /* device arena of one rank, 64-byte aligned offsets inside */
  const char *json;                 /* description of buffers; see runtime/README.md */
  int64_t json_bytes;
  pcrt_status (*step)(pcrt_context *ctx, char *arena); /* one training (or evaluation) step */
} pcrt_program;

/** The one symbol that a program object defines. */
extern const pcrt_program pc_program;

/* ---- called by the step ---- */

/** Runs kernel `index` over all of its items on the thread pool and waits. */
pcrt_status pcrt_launch(pcrt_context *ctx, int32_t index, void *const *args);

/** Runs matrix product `index`. `bias` is null unless the descriptor says so. */
pcrt_status pcrt_gemm(pcrt_context *ctx, int32_t index, const void *a, const void *b, void *c, const void *bias);

/** Runs move `index` and waits. All members of the group call it in the same order. */
pcrt_status pcrt_move(pcrt_context *ctx, int32_t index, const void *in, void *out);

/** Shows output `index` of the JSON description (loss, grad_norm, a gradient, logits) to the runtime, at the point of
 *  the step where it holds its value. `microbatch` is 0 outside the accumulation loop. */
pcrt_status pcrt_observe(pcrt_context *ctx, int32_t index, int64_t microbatch, const void *data);

/** This rank's coordinate in group `group`. */
int64_t pcrt_coordinate(pcrt_context *ctx, int32_t group);

#ifdef __cplusplus
}
#endif
#endif
