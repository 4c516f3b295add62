//===- transfers.h - Orders with one stream per flow ----------------------===//
// Instructions for pipelines whose messages overlap with tasks.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_PIPELINE_TRANSFERS_H
#define PC_TEST_PIPELINE_TRANSFERS_H

#include "pc/Pipeline/Program.h"

/// Adds sends and receives to an order that does not stall: one stream per flow; a send right after its
/// producer, a receive as early as its slot allows (the consumer of the message `slots` before it is done). Free of
/// deadlock for every order and slots >= 1; 2 reach the full overlap.
pc::pipeline::Program placeTransfers(const pc::pipeline::Problem &problem, const pc::pipeline::Order &order, int slots);

#endif
