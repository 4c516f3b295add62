//===- Rows.h - The part of the conformance suite about rows --------------===//
#ifndef PCRT_TEST_ROWS_H
#define PCRT_TEST_ROWS_H

#include "comm/Comm.h"

/// Carries out moves of rows over `group` and checks each; `arena` has 2 MiB for them. Returns how many there were.
int64_t checkRowMoves(const pcrt::Group &group, char *arena);

/// Checks that moves that say wrongly that they are of rows are refused.
void checkRefusedRows(const pcrt::Group &group, char *arena);

#endif // PCRT_TEST_ROWS_H
