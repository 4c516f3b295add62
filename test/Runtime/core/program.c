/* A compiled program written by hand, to test the runtime without the compiler: one linear layer on top of token and
 * position embeddings, cross entropy, clipping and AdamW. dp splits the batch, tp the width; microbatches accumulate.
 * Compile with -DDP=2 -DTP=2 -DMICRO=2 -DEVAL, -DLOOSE, -DOTHER or -DDIES; with -DCUDA_IMAGE="file" for a CUDA device,
 * with the kernels from that file, which is this one compiled with -DIMAGE as a shared object: the same functions as
 * kernels of one thread. */
#include "pcrt/host_image.h"
#include "pcrt/pcrt.h"

#include <math.h>
#ifdef DIES
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#endif
#include <string.h>

#ifndef DP
#define DP 1
#endif
#ifndef TP
#define TP 1
#endif
#ifndef MICRO
#define MICRO 1
#endif
#define V 32 /* vocabulary */
#define C 16 /* width */
#define T 8  /* sequence */
#define B 8  /* batch */
#define CL (C / TP)
#define ROWS (B / MICRO / DP * T) /* of one microbatch on one rank */
#define PARAMS ((V + T + V) * CL) /* wte, wpe, head */

#define STR_(x) #x
#define STR(x) STR_(x)

/* The arena: 64 KiB slots. */
enum {
  PARAM = 0 << 16,
  GRAD = 1 << 16,
  FIRST = 2 << 16,
  SECOND = 3 << 16,
  TOKENS = 4 << 16,
  TARGETS = 5 << 16,
  HYPER = 6 << 16,
  X = 7 << 16,
  LOGITS = 8 << 16,
  DX = 9 << 16,
  ROWLOSS = 10 << 16,
  SCALARS = 11 << 16, /* loss, norm, scale */
  SHOWN = 12 << 16,   /* logits as observed */
  END = 13 << 16
};

static int64_t embed(void *const *args, int64_t lo, int64_t hi, void *scratch) {
  const int32_t *tokens = args[0];
  const float *wte = args[1], *wpe = args[2];
  float *x = args[3];
  (void)scratch;
  for (int64_t row = lo; row < hi; ++row) {
    if (tokens[row] < 0 || tokens[row] >= V)
      return 1 + row;
    for (int c = 0; c < CL; ++c)
      x[row * CL + c] = wte[tokens[row] * CL + c] + wpe[row % T * CL + c];
  }
  return 0;
}

/* Turns logits into their gradient, in place. The scratch memory is used only to see that it is there. */
static int64_t lossGrad(void *const *args, int64_t lo, int64_t hi, void *scratch) {
  float *logits = args[0], *rowLoss = args[2], *e = scratch;
  const int32_t *targets = args[1];
  for (int64_t row = lo; row < hi; ++row) {
    float *at = logits + row * V, largest = at[0], sum = 0;
    for (int v = 0; v < V; ++v)
      largest = fmaxf(largest, at[v]);
    for (int v = 0; v < V; ++v)
      sum += e[v] = expf(at[v] - largest);
    rowLoss[row] = (logf(sum) + largest - at[targets[row]]) / (B * T);
    for (int v = 0; v < V; ++v)
      at[v] = (e[v] / sum - (v == targets[row])) / (B * T);
  }
  return 0;
}

static int64_t sumLoss(void *const *args, int64_t lo, int64_t hi, void *scratch) {
  const float *rowLoss = args[0];
  float sum = 0;
  (void)lo, (void)hi, (void)scratch;
  for (int row = 0; row < ROWS; ++row)
    sum += rowLoss[row];
  *(float *)args[1] = sum;
  return 0;
}

static int64_t embedGrad(void *const *args, int64_t lo, int64_t hi, void *scratch) {
  const int32_t *tokens = args[0];
  const float *dx = args[1];
  float *dwte = args[2], *dwpe = args[3];
  (void)lo, (void)hi, (void)scratch;
  for (int row = 0; row < ROWS; ++row)
    for (int c = 0; c < CL; ++c) {
      dwte[tokens[row] * CL + c] += dx[row * CL + c];
      dwpe[row % T * CL + c] += dx[row * CL + c];
    }
  return 0;
}

static int64_t sumSquares(void *const *args, int64_t lo, int64_t hi, void *scratch) {
  const float *grad = args[0];
  float sum = 0;
  (void)lo, (void)hi, (void)scratch;
  for (int i = 0; i < PARAMS; ++i)
    sum += grad[i] * grad[i];
  *(float *)args[1] = sum;
  return 0;
}

static int64_t clip(void *const *args, int64_t lo, int64_t hi, void *scratch) {
  float *scalars = args[0];
  const float *hyper = args[1];
  (void)lo, (void)hi, (void)scratch;
  scalars[1] = sqrtf(scalars[1]);
  scalars[2] = scalars[1] < hyper[8] ? fminf(1, hyper[7] / (scalars[1] + 1e-6f)) : NAN;
  return 0;
}

static int64_t adamw(void *const *args, int64_t lo, int64_t hi, void *scratch) {
  float *p = args[0], *m = args[2], *v = args[3];
  const float *g = args[1], *hyper = args[4], *scalars = args[5];
  (void)scratch;
  if (isnan(scalars[2])) /* the step is skipped: everything stays as it is */
    return 0;
  for (int64_t i = lo; i < hi; ++i) {
    float grad = g[i] * scalars[2];
    m[i] = hyper[1] * m[i] + (1 - hyper[1]) * grad;
    v[i] = hyper[2] * v[i] + (1 - hyper[2]) * grad * grad;
    p[i] -= hyper[0] * (hyper[4] * p[i] + m[i] / hyper[5] / (sqrtf(v[i] / hyper[6]) + hyper[3]));
  }
  return 0;
}

static int64_t clear(void *const *args, int64_t lo, int64_t hi, void *scratch) {
  (void)lo, (void)hi, (void)scratch;
  memset(args[0], 0, PARAMS * 4);
  return 0;
}

#ifdef IMAGE

#define ENTRY(name, args, items)                                                                                       \
  static void name##Entry(void **params) {                                                                             \
    void *values[args];                                                                                                \
    float scratch[V];                                                                                                  \
    for (int i = 0; i < args; ++i)                                                                                     \
      memcpy(&values[i], params[i], sizeof(void *));                                                                   \
    name(values, 0, items, scratch);                                                                                   \
  }
ENTRY(embed, 4, ROWS)
ENTRY(lossGrad, 3, ROWS)
ENTRY(sumLoss, 2, 1)
ENTRY(embedGrad, 4, 1)
ENTRY(sumSquares, 2, 1)
ENTRY(clip, 2, 1)
ENTRY(adamw, 6, PARAMS)
ENTRY(clear, 1, 1)

static const uint32_t pointers[] = {8, 8, 8, 8, 8, 8};
#define ROW(name, args) {#name, name##Entry, name##Entry, 0, 0, 0, 0, 0, {0, 0, 0}, 0, args, pointers}
static const pcrt_host_kernel rows[] = {ROW(embed, 4),      ROW(lossGrad, 3), ROW(sumLoss, 2), ROW(embedGrad, 4),
                                        ROW(sumSquares, 2), ROW(clip, 2),     ROW(adamw, 6),   ROW(clear, 1)};
const pcrt_host_module pc_standin_module = {PCRT_HOST_IMAGE_VERSION, 8, rows, 0, 0};

#else

#ifdef CUDA_IMAGE
#define KERNEL(name, kind, fn, items, scratch) {name, kind, fn == 0 ? fn : 0, 0, 0, 0}
#else
#define KERNEL(name, kind, fn, items, scratch) {name, kind, fn, 0, items, scratch}
#endif
static const pcrt_kernel kernels[] = {
    KERNEL("embed wte", "embedding", embed, ROWS, 0), KERNEL("cross_entropy", "loss", lossGrad, ROWS, V * 4),
    KERNEL("sum loss", "loss", sumLoss, 1, 0),        KERNEL("embed_grad wte", "embedding", embedGrad, 1, 0),
    KERNEL("sum_squares", "norm", sumSquares, 1, 0),  KERNEL("clip", "optimizer", clip, 1, 0),
    KERNEL("adamw", "optimizer", adamw, PARAMS, 0),   KERNEL("clear gradients", "elementwise", clear, 1, 0),
};

static const pcrt_gemm_desc gemms[] = {
    {"head", 1, ROWS, V, CL, 0, CL, 1, 0,        V,        1,        0, V, 1,
     0,      0, 0,    0, 0,  0, 0,  0, PCRT_F32, PCRT_F32, PCRT_F32, 0, 0, -1},
    {"head input gradient",
     1,
     ROWS,
     CL,
     V,
     0,
     V,
     1,
     0,
     1,
     V,
     0,
     CL,
     1,
     0,
     0,
     0,
     0,
     0,
     0,
     0,
     0,
     PCRT_F32,
     PCRT_F32,
     PCRT_F32,
     0,
     0,
     -1},
    {"head weight gradient",
     1,
     CL,
     V,
     ROWS,
     0,
     1,
     CL,
     0,
     V,
     1,
     0,
     V,
     1,
     0,
     0,
     0,
     0,
     0,
     0,
     0,
     0,
     PCRT_F32,
     PCRT_F32,
     PCRT_F32,
     1,
     0,
     -1},
};

static const pcrt_group groups[] = {{1, {0}}, {1, {1}}};

static const pcrt_move_desc moves[] = {
    {"all_reduce logits", PCRT_ALL_REDUCE, 1, PCRT_F32, PCRT_SUM, ROWS * V, 1, 1, 1, 1, "forward", 0, 0, 0},
    {"all_reduce loss", PCRT_ALL_REDUCE, 0, PCRT_F32, PCRT_SUM, 1, 1, 1, 1, 1, "forward", 0, 0, 0},
    {"all_reduce gradients", PCRT_ALL_REDUCE, 0, PCRT_F32, PCRT_SUM, PARAMS, 1, 1, 1, 1, "backward", 0, 0, 0},
    {"all_reduce norm", PCRT_ALL_REDUCE, 1, PCRT_F32, PCRT_SUM, 1, 1, 1, 1, 1, "optimizer", 0, 0, 0},
};

static const int64_t meshSizes[] = {DP, TP};
static const char *const meshNames[] = {"dp", "tp"};

#ifdef DIES
/* Before call KILL_AT of rank KILL_RANK, counted from 1 over all steps of the process, the process is killed, if there
 * is a file KILL_ONCE, which goes. */
static void mayDie(void) {
  static int64_t calls;
  const char *rank = getenv("PCRT_RANK"), *at = getenv("KILL_AT"), *of = getenv("KILL_RANK");
  if (++calls == (at ? atoll(at) : 0) && rank && of && !strcmp(rank, of) && unlink("KILL_ONCE") == 0)
    kill(getpid(), SIGKILL);
}
#else
static void mayDie(void) {}
#endif

#define RUN(call)                                                                                                      \
  do {                                                                                                                 \
    mayDie();                                                                                                          \
    pcrt_status status = call;                                                                                         \
    if (status != PCRT_OK)                                                                                             \
      return status;                                                                                                   \
  } while (0)

/* `shows`: the step; else the part of it that the loss needs. */
static pcrt_status forward(pcrt_context *ctx, char *arena, int64_t micro, int shows) {
  float *wte = (float *)(arena + PARAM), *wpe = wte + V * CL, *head = wte + (V + T) * CL;
  float *x = (float *)(arena + X), *logits = (float *)(arena + LOGITS), *scalars = (float *)(arena + SCALARS);
  int32_t *tokens = (int32_t *)(arena + TOKENS) + micro * ROWS, *targets = (int32_t *)(arena + TARGETS) + micro * ROWS;
  RUN(pcrt_launch(ctx, 0, (void *[]){tokens, wte, wpe, x}));
  RUN(pcrt_gemm(ctx, 0, x, head, logits, 0, 0));
  RUN(pcrt_move(ctx, 0, logits, logits));
  if (shows)
    RUN(pcrt_observe(ctx, 2, micro, logits));
  RUN(pcrt_launch(ctx, 1, (void *[]){logits, targets, arena + ROWLOSS}));
  RUN(pcrt_launch(ctx, 2, (void *[]){arena + ROWLOSS, scalars}));
  RUN(pcrt_move(ctx, 1, scalars, scalars));
  RUN(pcrt_observe(ctx, 0, micro, scalars));
  return PCRT_OK;
}

#if !defined(EVAL) && !defined(CUDA_IMAGE)
static pcrt_status evaluate(pcrt_context *ctx, char *arena) {
  for (int64_t micro = 0; micro < MICRO; ++micro)
    RUN(forward(ctx, arena, micro, 0));
  return PCRT_OK;
}
#endif

static pcrt_status step(pcrt_context *ctx, char *arena) {
  float *param = (float *)(arena + PARAM), *grad = (float *)(arena + GRAD), *x = (float *)(arena + X);
  float *logits = (float *)(arena + LOGITS), *scalars = (float *)(arena + SCALARS), *head = param + (V + T) * CL;
  RUN(pcrt_launch(ctx, 7, (void *[]){grad}));
  for (int64_t micro = 0; micro < MICRO; ++micro) {
    RUN(forward(ctx, arena, micro, 1));
#ifndef EVAL
    int32_t *tokens = (int32_t *)(arena + TOKENS) + micro * ROWS;
    float *dx = (float *)(arena + DX);
    RUN(pcrt_gemm(ctx, 1, logits, head, dx, 0, 0));
    RUN(pcrt_gemm(ctx, 2, x, logits, grad + (V + T) * CL, 0, 0));
    RUN(pcrt_launch(ctx, 3, (void *[]){tokens, dx, grad, grad + V * CL}));
#endif
  }
#ifndef EVAL
  RUN(pcrt_move(ctx, 2, grad, grad));
  RUN(pcrt_observe(ctx, 3, 0, grad));
  RUN(pcrt_observe(ctx, 4, 0, grad + V * CL));
  RUN(pcrt_observe(ctx, 5, 0, grad + (V + T) * CL));
  RUN(pcrt_launch(ctx, 4, (void *[]){grad, scalars + 1}));
  RUN(pcrt_move(ctx, 3, scalars + 1, scalars + 1));
  RUN(pcrt_launch(ctx, 5, (void *[]){scalars, arena + HYPER}));
  RUN(pcrt_observe(ctx, 1, 0, scalars + 1));
  RUN(pcrt_launch(ctx, 6, (void *[]){param, grad, arena + FIRST, arena + SECOND, arena + HYPER, scalars}));
#endif
  return PCRT_OK;
}

/* Offsets in the arena as text, for the description: wpe and head after wte, and the same for the two states. */
#if TP == 1
#define O1 "2048"
#define O2 "2560"
#define F0 "131072"
#define F1 "133120"
#define F2 "133632"
#define S0 "196608"
#define S1 "198656"
#define S2 "199168"
#elif TP == 2
#define O1 "1024"
#define O2 "1280"
#define F0 "131072"
#define F1 "132096"
#define F2 "132352"
#define S0 "196608"
#define S1 "197632"
#define S2 "197888"
#elif TP == 4
#define O1 "512"
#define O2 "640"
#define F0 "131072"
#define F1 "131584"
#define F2 "131712"
#define S0 "196608"
#define S1 "197120"
#define S2 "197248"
#endif

// clang-format off: lines of JSON
#define EMB "\"source\": {\"tensor\": \"transformer.emb.weight\", \"shape\": [40, 16], "
#define STATE(name, param, at)                                                                                         \
  "{\"name\": \"" name "\", \"parameter\": \"" param "\", \"dtype\": \"f32\", \"shape\": [], \"layout\": [], "           \
  "\"offset\": " at "}"
#define IDS(kind, at)                                                                                                  \
  "{\"name\": \"" kind "\", \"kind\": \"" kind "\", \"dtype\": \"i32\", \"shape\": [" STR(MICRO) ", " MICRO_ROWS         \
  ", 8], \"layout\": [[], [\"dp\"], []], \"offset\": " at "}"
#if MICRO == 1
#define MICRO_ROWS "8"
#else
#define MICRO_ROWS "4"
#endif
#ifdef LOOSE /* the description promises more tokens than the kernel takes */
#define VOCABULARY "64"
#else
#define VOCABULARY "32"
#endif
#ifdef EVAL
#define MODE "eval"
#else
#define MODE "train"
#endif

static const char json[] =
    "{\"abi\": 1, \"mode\": \"" MODE "\", \"name\": \"linear\", \"microbatches\": " STR(MICRO) ", \"optimizer\": \"adamw\","
    " \"mesh\": [[\"dp\", " STR(DP) "], [\"tp\", " STR(TP) "]], \"batch\": 8, \"sequence\": 8, \"vocabulary\": " VOCABULARY ","
    " \"parameters\": ["
    " {\"name\": \"wte\", \"dtype\": \"f32\", \"shape\": [32, 16], \"layout\": [[], [\"tp\"]], \"offset\": 0, \"key\": 0,"
    "  \"init\": {\"kind\": \"normal\", \"std\": 0.5}, " EMB "\"start\": [0, 0], \"size\": [32, 16]}},"
    " {\"name\": \"wpe\", \"dtype\": \"f32\", \"shape\": [8, 16], \"layout\": [[], [\"tp\"]], \"offset\": " O1 ", \"key\": 1,"
    "  \"init\": {\"kind\": \"constant\", \"value\": 0.25}, " EMB "\"start\": [32, 0], \"size\": [8, 16]}},"
    " {\"name\": \"head\", \"dtype\": \"f32\", \"shape\": [16, 32], \"layout\": [[\"tp\"], []], \"offset\": " O2 ","
    "  \"key\": 2, \"init\": {\"kind\": \"normal\", \"std\": 0.5},"
    "  \"source\": {\"tensor\": \"lm_head.weight\", \"shape\": [16, 32], \"start\": [0, 0], \"size\": [16, 32]}}],"
    " \"states\": ["
#ifndef EVAL
    STATE("exp_avg", "wte", F0) "," STATE("exp_avg", "wpe", F1) "," STATE("exp_avg", "head", F2) ","
    STATE("exp_avg_sq", "wte", S0) "," STATE("exp_avg_sq", "wpe", S1) "," STATE("exp_avg_sq", "head", S2)
#endif
    "],"
    " \"inputs\": [" IDS("tokens", "262144") "," IDS("targets", "327680") ","
    "  {\"name\": \"hyper\", \"kind\": \"hyper\", \"dtype\": \"f32\", \"shape\": [9], \"layout\": [[]], \"offset\": 393216}],"
    " \"outputs\": ["
    "  {\"kind\": \"loss\", \"name\": \"loss\", \"dtype\": \"f32\", \"shape\": [], \"layout\": []},"
    "  {\"kind\": \"grad_norm\", \"name\": \"grad_norm\", \"dtype\": \"f32\", \"shape\": [], \"layout\": []},"
    "  {\"kind\": \"logits\", \"name\": \"logits\", \"dtype\": \"f32\", \"shape\": [8, 8, 32], \"layout\": [[\"dp\"], [], []]}"
#ifndef EVAL
    ","
    "  {\"kind\": \"gradient\", \"name\": \"wte\", \"dtype\": \"f32\", \"shape\": [32, 16], \"layout\": [[], [\"tp\"]]},"
    "  {\"kind\": \"gradient\", \"name\": \"wpe\", \"dtype\": \"f32\", \"shape\": [8, 16], \"layout\": [[], [\"tp\"]]},"
    "  {\"kind\": \"gradient\", \"name\": \"head\", \"dtype\": \"f32\", \"shape\": [16, 32], \"layout\": [[\"tp\"], []]}"
#endif
    "],"
    " \"config\": \"{\\\"model_type\\\": \\\"linear\\\",  \\\"vocab_size\\\": 32, \\\"torch_dtype\\\":\\\"bfloat16\\\", "
    "\\\"eps\\\": 1e-05, \\\"cap\\\": 7.0}\","
    " \"config_means\": [{\"at\": [\"vocab_size\"], \"values\": [32], \"default\": null},"
#ifdef OTHER
    "  {\"at\": [\"norm.eps\", \"eps\"], \"values\": [1e-06], \"default\": 1e-06}],"
#else
    "  {\"at\": [\"norm.eps\", \"eps\"], \"values\": [1e-05], \"default\": 1e-06}],"
#endif
    " \"report\": {\"plan\": \"by hand\", \"parameters\": 1152, \"per_rank\": [{\"ranks\": [0], \"memory\": "
    "{\"parameters\": 4608}}]}}";
// clang-format on

#ifdef CUDA_IMAGE
__asm__(".section .rodata\n.balign 16\nimage: .incbin \"" CUDA_IMAGE "\"\nimageEnd:\n.previous\n");
extern const char image[] __attribute__((visibility("hidden")));
static const pcrt_image images[] = {{PCRT_HOST_IMAGE, 0, 0, image, 0}, {PCRT_CUBIN, 90, 1, "no cubin", 8}};
#define DEVICE(name, args) {#name, {1, 1, 1}, {1, 1, 1}, args, 0}
static const pcrt_device_kernel deviceKernels[] = {DEVICE(embed, 4),     DEVICE(lossGrad, 3),   DEVICE(sumLoss, 2),
                                                   DEVICE(embedGrad, 4), DEVICE(sumSquares, 2), DEVICE(clip, 2),
                                                   DEVICE(adamw, 6),     DEVICE(clear, 1)};
#endif

const pcrt_program pc_program = {
    .abi_version = PCRT_ABI_VERSION
#ifdef OLD
                   - PCRT_ABI_VERSION + 1
#endif
    ,
    .num_mesh_axes = 2,
    .mesh_sizes = meshSizes,
    .mesh_names = meshNames,
    .num_groups = 2,
    .num_kernels = 8,
    .num_gemms = 3,
    .num_moves = 4,
    .groups = groups,
    .kernels = kernels,
    .gemms = gemms,
    .moves = moves,
    .json = json,
    .json_bytes = sizeof json - 1,
    .step = step,
#ifdef CUDA_IMAGE
    .arena_bytes = END + (1 << 16),
    .target = PCRT_CUDA,
    .num_images = 2,
    .images = images,
    .device_kernels = deviceKernels,
    .workspace_offset = END,
    .workspace_bytes = 1 << 16,
#else
    .arena_bytes = END,
    .target = PCRT_CPU,
#ifndef EVAL
    .evaluate = evaluate,
#endif
#endif
};
#endif
