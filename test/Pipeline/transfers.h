//===- transfers.h - Orders with one stream per flow ----------------------===//
// Instructions for pipelines whose messages overlap with tasks.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_PIPELINE_TRANSFERS_H
#define PC_TEST_PIPELINE_TRANSFERS_H

#include "pc/Pipeline/Program.h"

/// Adds sends and receives to an order that does not stall. Each flow has one stream. A send follows its producer at
/// once. A receive starts as early as its slot allows, that is, when the consumer of the message `slots` messages
/// earlier is done. The result has no deadlock for any order with slots >= 1, and full overlap with two slots.
pc::pipeline::Program placeTransfers(const pc::pipeline::Problem &problem, const pc::pipeline::Order &order, int slots);

#endif
