/* description.h - names and numbers in the JSON description of a program (runtime/README.md) that compiler, interpreter
 * and runtime share.
 */
#ifndef PCRT_DESCRIPTION_H
#define PCRT_DESCRIPTION_H

/** "abi" of a description. */
#define PCRT_DESCRIPTION_VERSION 1

/** The elements of the input "hyper", an array of f32; t counts steps from 1. */
enum pcrt_hyper {
  PCRT_HYPER_LR,
  PCRT_HYPER_BETA1,
  PCRT_HYPER_BETA2,
  PCRT_HYPER_EPS,
  PCRT_HYPER_WEIGHT_DECAY,
  PCRT_HYPER_CORRECTION1, /* 1 - beta1^t */
  PCRT_HYPER_CORRECTION2, /* 1 - beta2^t */
  PCRT_HYPER_CLIP,
  PCRT_HYPER_NORM_LIMIT, /* a step whose norm is not less is skipped */
  PCRT_HYPER_COUNT
};

/** The elements of an input "random", an array of i32 for each microbatch, from which its dropout draws: the words of
 * the run's seed, the step from 0, the dropout's number in the model, and the first row of the microbatch in the batch
 * of the step. */
enum pcrt_random {
  PCRT_RANDOM_SEED_LOW,
  PCRT_RANDOM_SEED_HIGH,
  PCRT_RANDOM_STEP,
  PCRT_RANDOM_KEY,
  PCRT_RANDOM_ROW,
  PCRT_RANDOM_COUNT
};

/** The states of AdamW, as torch.optim calls them. */
#define PCRT_EXP_AVG "exp_avg"
#define PCRT_EXP_AVG_SQ "exp_avg_sq"

/** The states of a parameter for rounds of local SGD: its value, which all replicas share, and the outer optimizer's
 * momentum. */
#define PCRT_SHARED "shared"
#define PCRT_OUTER_MOMENTUM "outer_momentum"

/** The state of a parameter of codes by which they are multiplied. */
#define PCRT_SCALE "scale"

/** The kind of an output that is a choice of experts for each token of a layer. */
#define PCRT_ROUTING "routing"

/** The initial values of a parameter: drawn with deviation "std", or "value" everywhere. */
#define PCRT_INIT_NORMAL "normal"
#define PCRT_INIT_CONSTANT "constant"

#endif
