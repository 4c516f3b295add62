/* The C ABI between a compiled program and the runtime.
 *
 * A program is one object file: constant tables (kernels, matrix products, moves), a JSON description
 * of its buffers, and a function that runs one step by calling the functions below. Nothing here knows
 * MLIR or LLVM. Every call returns a pcrt_status; the step returns the first one that is not PCRT_OK.
 * On a CPU a call runs and waits. On CUDA it enqueues: all addresses are device addresses, the step is
 * captured once as a graph, and so it makes the same calls every time.
 */
#ifndef PCRT_PCRT_H
#define PCRT_PCRT_H

#include "pcrt/moves.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PCRT_ABI_VERSION 16

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
  PCRT_UNDECIDED = 11,
} pcrt_status;

/** I8 and I4 are codes of weights, which are multiplied by scales. A byte has two codes of I4: see pcrt_gemm_desc. E4M3
 * and E5M2 are floats of 8 bits (pcrt/float8.h), as operands of products; elsewhere they count as I8. */
typedef enum pcrt_dtype {
  PCRT_F32 = 0,
  PCRT_BF16 = 1,
  PCRT_I32 = 2,
  PCRT_I8 = 3,
  PCRT_I4 = 4,
  PCRT_E4M3 = 5,
  PCRT_E5M2 = 6,
} pcrt_dtype;
typedef enum pcrt_reduction { PCRT_SUM = 0, PCRT_MAX = 1 } pcrt_reduction;

/** The device on which a program runs. */
typedef enum pcrt_target { PCRT_CPU = 0, PCRT_CUDA = 1 } pcrt_target;

/** The operation after a matrix product; those from 2 on are for CUDA only. A bias is f32 on a CPU and has c's dtype on
 * CUDA; aux has c's dtype and layout. */
typedef enum pcrt_epilogue {
  PCRT_EPILOGUE_NONE = 0,
  PCRT_EPILOGUE_BIAS = 1,      /* + bias[n] */
  PCRT_EPILOGUE_GELU_BIAS = 2, /* gelu_tanh(x + bias[n]); x + bias[n] goes to aux */
  PCRT_EPILOGUE_GELU_GRAD = 3, /* x * gelu_tanh'(aux) */
  PCRT_EPILOGUE_BIAS_GRAD = 4, /* sums of b over k go to bias[n] */
} pcrt_epilogue;

/** The scales of an operand that has floats of 8 bits. Its element is code times scale; `rows` is m of a, n of b, and
 * is a multiple of 128, as k is; with one scale, of 16. */
typedef enum pcrt_scales {
  PCRT_SCALES_NONE = 0,
  PCRT_SCALES_VECTORS = 1, /* for 128 elements along k: f32 [k / 128, rows] */
  PCRT_SCALES_SQUARES = 2, /* for 128 x 128 elements: f32 [rows / 128, k / 128]; of one operand at most */
  PCRT_SCALES_ONE = 3,     /* for all elements: f32; of both operands */
} pcrt_scales;

/** The operation of a product on rows, which are the entries [token, expert] of a mask that are not 0, ordered by
 * expert and then by token. On CPUs only. */
typedef enum pcrt_grouped {
  PCRT_GROUPED_NONE = 0,
  PCRT_GROUPED_PRODUCT = 1,  /* c = a b, with the b of each row's expert */
  PCRT_GROUPED_GRADIENT = 2, /* the c of each expert = a^T b, summed over its rows */
  PCRT_GROUPED_PACK = 3,     /* c [row] = a [token, expert], or the n numbers of a [token] */
  PCRT_GROUPED_UNPACK = 4,   /* c [token, expert] = a [row], or 0; or n numbers, c [token] = the sum of its rows */
  PCRT_GROUPED_SPREAD = 5,   /* c [row, n] = a [expert of the row, n] */
  PCRT_GROUPED_SUM = 6,      /* c [expert, n] = a [row, n], summed over its rows */
} pcrt_grouped;

/** The layout of an operand of such a product: one matrix per expert, one number per token and expert, one line per
 * row, or one line per token. The last is read again for each row of its token, and written as the sum over its rows.
 */
typedef enum pcrt_lies {
  PCRT_LIES_EXPERTS = 0,
  PCRT_LIES_ENTRIES = 1,
  PCRT_LIES_ROWS = 2,
  PCRT_LIES_TOKENS = 3,
} pcrt_lies;

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
  pcrt_kernel_fn fn_f32; /* null, or does the same by f32 FMA where fn multiplies pairs of bf16 (AVX512_BF16) */
  int64_t items;
  int64_t scratch_bytes;
} pcrt_kernel;

/** The launch of the kernel of the same index on a GPU; its pcrt_kernel has no fn, items or scratch then. The
 * parameters of the entry point are `num_args` device pointers: those given to pcrt_launch, in order. */
typedef struct pcrt_device_kernel {
  const char *entry; /* name in every image */
  int32_t grid[3], block[3];
  int32_t num_args;
  int64_t shared_bytes; /* dynamic shared memory of a block */
} pcrt_device_kernel;

typedef enum pcrt_image_kind {
  PCRT_CUBIN = 0,
  PCRT_PTX = 1,        /* zero-terminated */
  PCRT_HOST_IMAGE = 2, /* a shared object for the stand-in of the driver; in test builds only */
} pcrt_image_kind;

/** All device kernels of the program, compiled for one architecture. */
typedef struct pcrt_image {
  int32_t kind;          /* pcrt_image_kind */
  int32_t arch;          /* 90: sm_90; 0: host */
  int32_t arch_specific; /* 1: the 'a' variant, for exactly this architecture */
  const void *data;
  int64_t bytes;
} pcrt_image;

/** Attention of one layer, forward or backward, computed by a library. Strides are in elements, over batch, head,
 *  position and head dim. Head h of q reads head h / (q_heads / kv_heads) of k and v. Statistics are the f32
 * log-sum-exp [batch, q_heads, q_length]. */
typedef struct pcrt_attention_desc {
  const char *name;
  int32_t backward, causal, dtype;
  int64_t batch, q_heads, kv_heads, q_length, kv_length, head_dim;
  float scale;
  int64_t q[4], k[4], v[4], o[4];      /* strides */
  int64_t d_o[4], dq[4], dk[4], dv[4]; /* backward only */
  int64_t workspace_bytes;
  int32_t own[2]; /* 1 + index of the program's own kernels that do the same, in order, if the library is missing or
                     refuses; they take the first arguments of the call. 0: none */
} pcrt_attention_desc;

/** c[b, m, n] (+)= sum_k a[b, m, k] * b[b, k, n], then the epilogue. Strides are in elements; one of the last two
 *  strides of each operand is 1. Accumulation is in f32 whatever the dtypes.
 *  If b has codes, its element is code times scale, as f32. `aux` (`bias` if grouped, by expert) has the scales, f32:
 *  [n, k / group] if b_k_stride is 1, else [k / group, n]. Two codes of I4 of one column share a byte: code i of a
 *  group has the low four bits of byte i, code i + group / 2 the high ones. Strides count codes. On CPUs only: on a
 *  GPU, kernels of the program multiply by codes.
 *  If a_scales and b_scales are set, both operands have floats of 8 bits, at most one of them E5M2, and k is their last
 *  dim. `bias` has the scales of a, and `aux` those of b. There is no epilogue. On GPUs of compute capability 9.0 only.
 */
typedef struct pcrt_gemm_desc {
  const char *name;
  int64_t batch, m, n, k;
  int64_t a_batch_stride, a_m_stride, a_k_stride;
  int64_t b_batch_stride, b_k_stride, b_n_stride;
  int64_t c_batch_stride, c_m_stride, c_n_stride;
  int64_t group;                 /* elements of k with one scale; 0: b has no codes */
  int64_t experts, tokens, rows; /* grouped only: of the mask, which is `aux`, f32 [tokens, experts]; it has at most
                                    `rows` entries. m or k, of rows, is `rows`, batch is `experts` */
  int32_t grouped, a_lies, b_lies, c_lies; /* pcrt_grouped, pcrt_lies */
  int32_t a_dtype, b_dtype, c_dtype;
  int32_t accumulate; /* 1: add to c */
  int32_t epilogue;   /* pcrt_epilogue */
  int32_t rest;       /* epilogues from 2 on: the kernel that does the same after the product alone, with the arguments
                         (aux, c) after a product with bias to aux, (c, aux, c), or (b, bias). One that takes the
                         workspace after these leaves sums there that the next kernel adds */
  int32_t a_scales, b_scales; /* pcrt_scales */
} pcrt_gemm_desc;

/** A move of one value over one group of ranks. The group-global tensor has the shape [outer, extent, inner], row
 *  major, where `extent` is the full size of the moved dim (1 for all_reduce, mask, broadcast, reduce
 *  and permute: outer = elements).
 *  all_gather: in [outer, extent/n, inner] -> out [outer, extent, inner], blocks in coordinate order.
 *  reduce_scatter, slice, scatter: in [outer, extent, inner] -> out [outer, extent/n, inner].
 *  gather, pad: in [outer, extent/n, inner] -> out [outer, extent, inner], other blocks zero.
 *  insert: in [outer, extent/n, inner] -> one block of out [outer, extent, inner].
 *  slice, insert: on coordinate i the block is that of coordinate (i - shift) mod n; permute: the result is the operand
 *  of that coordinate. With a group `with`, in which this rank has coordinate j: of coordinate (shift - i - j) mod n.
 *  all_to_all: the tensor is [outer, extent, middle, extent2, inner]; `in` is split on extent and `out` on extent2, or
 *  with `reduction` = 1 the other way round. With `shift` = k it is one of rows: outer, extent and
 *  middle count tokens, extent2 experts, and `in` and `out` hold the entries [token, expert] where a mask is not 0,
 *  `inner` elements each, by expert and then by token. There is memory for min(k, experts of the rank) rows of each
 *  token of the rank; memory after the last row is undefined. The mask is that of all tokens and experts of the
 *  group, f32 [outer, extent, middle, extent2], the same on all members.
 *  carry: in [outer] -> out [outer], from or to the disk (PCRT_DISK) or the host (PCRT_HOST), as the flags in
 *  `reduction` say, on each rank alone.
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
  const char *phase;       /* "forward", "backward" or "optimizer", for counts of traffic */
  int32_t shift;           /* slice, insert and permute; of rows: experts of a token, at most; else 0 */
  int32_t with; /* 1 + index into pcrt_program.groups, of as many ranks; 0: none. The runtime passes moves to transports
                   and devices with the coordinate j subtracted from their shift */
  int64_t codes; /* all_reduce of sums of f32 only: the offset in the arena of memory for sending them as codes of 8
                    bits (pcrt/codes.h); 0: they are sent unchanged. For rows: the offset of the mask; the runtime
                    passes its address to transports */
} pcrt_move_desc;

/** Ranks that differ only in the coordinates of these mesh axes. The coordinate of a rank in the group is the mixed-
 *  radix number of its coordinates on the axes, first axis major. */
typedef struct pcrt_group {
  int32_t num_axes;
  int32_t axes[8]; /* indices into the mesh axes, major to minor */
} pcrt_group;

/** Messages of one size, in order, in one direction between two ranks that differ only in their stage. `id`
 * distinguishes the flows from one stage to another. */
typedef struct pcrt_flow {
  const char *name; /* "forward of chunk 1 from stage 0 to stage 1" */
  int32_t stage;    /* of the other end */
  int32_t id;
  int32_t sends;    /* 1: this stage is the source */
  int32_t slots;    /* messages that can be under way */
  int32_t messages; /* in a step */
  int64_t bytes;    /* of a message */
} pcrt_flow;

/** A task of a pipeline's schedule, or the optimizer's part after all of them. */
typedef enum pcrt_task_kind {
  PCRT_FORWARD = 0,
  PCRT_RECOMPUTE = 1,
  PCRT_BACKWARD = 2, /* gradients of inputs, or all gradients */
  PCRT_WEIGHT = 3,   /* gradients of weights */
  PCRT_OPTIMIZER = 4,
} pcrt_task_kind;

typedef struct pcrt_context pcrt_context;

typedef struct pcrt_program {
  uint32_t abi_version; /* PCRT_ABI_VERSION */
  int32_t num_mesh_axes;
  const int64_t *mesh_sizes; /* outermost first; rank = mixed-radix number of the coordinates */
  const char *const *mesh_names;
  int32_t num_groups, num_kernels, num_gemms, num_moves;
  const pcrt_group *groups;
  const pcrt_kernel *kernels;
  const pcrt_gemm_desc *gemms;
  const pcrt_move_desc *moves;
  int64_t arena_bytes; /* device arena of one rank; offsets inside are multiples of 64 (CUDA: 256) */
  int64_t host_bytes;  /* arena in page-locked memory of the host, of one rank; 0: none; CUDA only */
  int64_t disk_bytes;  /* arena on disk of one rank; 0: none */
  const char *json;    /* description of buffers; see runtime/README.md */
  int64_t json_bytes;
  pcrt_status (*step)(pcrt_context *ctx, char *arena); /* one training (or evaluation) step */
  /* The evaluation of a training program: the calls that its loss needs, in their order, without dropout and without
   * changes of parameters or states. Null: there is none. */
  pcrt_status (*evaluate)(pcrt_context *ctx, char *arena);
  pcrt_status (*round)(pcrt_context *ctx, char *arena); /* ends a round of local SGD; null: there are no rounds */
  int32_t target;                                       /* pcrt_target */
  int32_t num_images, num_attentions;
  int32_t num_tickets;                      /* tickets of pcrt_start are below this */
  const pcrt_image *images;                 /* CUDA only */
  const pcrt_device_kernel *device_kernels; /* CUDA only, num_kernels of them */
  const pcrt_attention_desc *attentions;
  int64_t workspace_offset, workspace_bytes; /* of matrix products, inside the arena; CUDA only */

  /* Stages of a pipeline: a program for each coordinate of one mesh axis. All have the same mesh and groups. */
  int32_t num_stages; /* 0: this is the only program */
  int32_t stage_axis, stage, num_flows;
  const pcrt_flow *flows;
  const struct pcrt_program *next_stage; /* null: the last one */
} pcrt_program;

/** The symbol that a program object defines, besides pc_compiler (version.h); in a pipeline, that of stage 0. */
extern const pcrt_program pc_program;

/* ---- called by the step ---- */

/** Runs kernel `index` over all of its items on the thread pool and waits. */
pcrt_status pcrt_launch(pcrt_context *ctx, int32_t index, void *const *args);

/** Runs matrix product `index`. `bias` and `aux` are null unless its epilogue uses them, it is grouped or an operand
 * has codes; BIAS_GRAD writes to bias. */
pcrt_status pcrt_gemm(pcrt_context *ctx, int32_t index, const void *a, const void *b, void *c, const void *bias,
                      void *aux);

/** Runs attention `index`. Forward args: q k v o statistics workspace. Backward args: q k v o statistics do dq dk dv
 *  dq_accumulator (f32, dq's elements) do_dot_o (f32, as statistics) workspace. */
pcrt_status pcrt_attention(pcrt_context *ctx, int32_t index, void *const *args);

/** Runs move `index` and waits. All members of the group call it in the same order. */
pcrt_status pcrt_move(pcrt_context *ctx, int32_t index, const void *in, void *out);

/** The largest number of moves of one pcrt_start. */
#define PCRT_MOST_STARTED 64

/** Starts moves [first_move, first_move + count), all of one group, as one call of the communication library. Earlier
 * work of the step is complete before they read; pcrt_wait of the same ticket makes their results visible to later
 * work. */
pcrt_status pcrt_start(pcrt_context *ctx, int32_t first_move, int32_t count, const void *const *ins, void *const *outs,
                       int32_t ticket);
pcrt_status pcrt_wait(pcrt_context *ctx, int32_t ticket);

/** Copies the next message of flow `index` into the flow, and waits only while all of its slots are full. */
pcrt_status pcrt_send(pcrt_context *ctx, int32_t index, const void *data);

/** Waits for the next message of flow `index`, and copies it to `data`. */
pcrt_status pcrt_receive(pcrt_context *ctx, int32_t index, void *data);

/** Says that the following calls belong to this task, for messages and traces. */
pcrt_status pcrt_task(pcrt_context *ctx, int32_t kind, int32_t chunk, int32_t microbatch);

/** Passes output `index` of the JSON description (loss, grad_norm, a gradient, logits, a routing) to the runtime, at
 * the point of the step at which it has its value. `microbatch` is 0 outside the accumulation loop. The runtime may
 * replace a routing at `data` by another one, with which the step continues. */
pcrt_status pcrt_observe(pcrt_context *ctx, int32_t index, int64_t microbatch, void *data);

/** Stores this rank's coordinate in group `group` times `block` at `to`. */
pcrt_status pcrt_block_offset(pcrt_context *ctx, int32_t group, int64_t block, int32_t *to);

#ifdef __cplusplus
}
#endif
#endif
