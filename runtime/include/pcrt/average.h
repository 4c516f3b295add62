//===- average.h - The average of the parameters over steps ----------------===//
// With --ema, each trained parameter has two more states. The compiler writes them, and the runtime saves the first one
// in a file of weights.
//===----------------------------------------------------------------------===//
#ifndef PCRT_AVERAGE_H
#define PCRT_AVERAGE_H

#define PCRT_EMA "ema"             /* the exponential average of the parameter */
#define PCRT_EMA_BEGUN "ema_begun" /* 1 if the average has a value, else 0 */
#define PCRT_EMA_FILE "ema.safetensors"

#endif
