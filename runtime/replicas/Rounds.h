//===- Rounds.h - Rounds of local SGD -------------------------------------===//
// Replicas train by themselves; the end of a round (pcrt_program::round) brings them together. Between two rounds every
// replica's parameters are those that all share.
//===----------------------------------------------------------------------===//
#ifndef PCRT_REPLICAS_ROUNDS_H
#define PCRT_REPLICAS_ROUNDS_H

#include "device/Context.h"

namespace pcrt {

/// The parameters that all share become those that this rank has, or the other way round.
void shareParameters(const Program &program, Device &device, int rank);
void takeShared(const Program &program, Device &device, int rank);

/// "every 32 steps, rate 0.7, momentum 0.9", or "none".
std::string describeRounds(const Program &program);

/// Ends a round; its traffic is counted apart from that of steps.
void endRound(pcrt_context &context);

} // namespace pcrt

#endif // PCRT_REPLICAS_ROUNDS_H
