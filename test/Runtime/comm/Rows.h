//===- Rows.h - The part of the conformance suite about rows --------------===//
// Moves of rows (comm/Rows.h) have masks and variable sizes, so the suite tests them separately.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TEST_ROWS_H
#define PCRT_TEST_ROWS_H

#include "comm/Comm.h"

/// Carries out moves of rows over `group` and checks each; `arena` has 2 MiB for them. Returns their number.
int64_t checkRowMoves(const pcrt::Group &group, char *arena);

/// Checks that malformed moves of rows are refused.
void checkRefusedRows(const pcrt::Group &group, char *arena);

#endif // PCRT_TEST_ROWS_H
