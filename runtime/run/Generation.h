//===- Generation.h - A run of a program that generates text ---------------===//
// Reads requests while steps run, and writes each token when it is chosen. Requests and answers are lines of JSON with
// token ids; text is the business of pc-generate and pc-serve, which run such a program.
//===----------------------------------------------------------------------===//
#ifndef PCRT_RUN_GENERATION_H
#define PCRT_RUN_GENERATION_H

#include "base/Program.h"
#include "comm/Comm.h"
#include "data/Options.h"
#include "schedule/Scheduler.h"

namespace pcrt {

/// The sizes of a program that generates text.
GenerationShape shapeOf(const Program &program);
/// Whether its requests may choose tokens at random.
bool samples(const Program &program);

/// Runs until the requests end and all have been answered. Throws a Failure.
///
/// A request is {"id": 7, "prompt": [1, 2], "max_tokens": 16}, with "temperature", "top_k", "top_p", "min_p" and "seed"
/// if tokens are chosen at random; {"cancel": 7} ends a request. For each token there is a line {"id": 7, "token": 5,
/// "logprob": -0.1}, the last one with "finish_reason"; a request that is refused has {"id": 7, "error": {"message":
/// "...", "param": "prompt"}}.
void runGeneration(const Program &program, const Options &options, Comm &comm);

} // namespace pcrt

#endif // PCRT_RUN_GENERATION_H
