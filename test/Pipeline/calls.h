//===- calls.h - Pipelines on devices whose calls begin in one order ------===//
// The calls of a pipeline with the receives that the runtime adds (comm/MessageOrder.h): as a program for the verifier,
// and as times.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_PIPELINE_CALLS_H
#define PC_TEST_PIPELINE_CALLS_H

#include "mutants.h"

/// Adds sends and receives to an order. A stage makes all its calls one after the other, beside its tasks. Receives
/// begin where the runtime places them, or, if `early`, as soon as their slot is free.
pc::pipeline::Program placeOneByOne(const pc::pipeline::Problem &problem, const pc::pipeline::Order &order, int slots,
                                    bool early = false);

/// How the times of a step differ from those by which the runtime places receives.
struct Times {
  int moves;     ///< Moves between ranks of a stage, in every task.
  double flight; ///< Seconds of a message.
  double error;  ///< The share by which tasks take longer or shorter, at most.
};

/// Returns by which factor a step takes longer because a call begins after all earlier calls of its stage.
double costOfOrder(const pc::pipeline::Problem &problem, const pc::pipeline::Order &order, const Times &times,
                   pc::pipeline::Random &random);

#endif
