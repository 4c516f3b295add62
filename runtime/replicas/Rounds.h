//===- Rounds.h - Rounds of local SGD -------------------------------------===//
// Replicas train independently, and the end of a round (pcrt_program::round) synchronizes them. Between two rounds the
// parameters of all replicas are the shared ones. Source: DiLoCo (A. Douillard et al., arXiv:2311.08105).
//===----------------------------------------------------------------------===//
#ifndef PCRT_REPLICAS_ROUNDS_H
#define PCRT_REPLICAS_ROUNDS_H

#include "device/Context.h"

namespace pcrt {

/// shareParameters sets the shared parameters to this rank's; takeShared sets this rank's parameters to the shared
/// ones.
void shareParameters(const Program &program, Device &device, int rank);
void takeShared(const Program &program, Device &device, int rank);

/// "every 32 steps, rate 0.7, momentum 0.9", or "none".
std::string describeRounds(const Program &program);

/// Ends a round. Its traffic is counted separately from that of steps. Throws a Failure.
void endRound(pcrt_context &context);

} // namespace pcrt

#endif // PCRT_REPLICAS_ROUNDS_H
