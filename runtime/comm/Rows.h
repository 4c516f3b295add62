//===- Rows.h - The all_to_all of rows that a mask chooses ----------------===//
// Experts of a mixture lie on other ranks than tokens do, and of the entries [token, expert] only those exist that a
// mask chooses: rows. Every member has the mask of all tokens and experts, so it knows where any row lies on any
// member, and nobody is told how many there are.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_ROWS_H
#define PCRT_COMM_ROWS_H

#include "comm/Comm.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pcrt {

/// How many experts a token has at most in a move of rows. 0: it is another move.
inline int64_t routedOf(const pcrt_move_desc &desc) { return desc.kind == PCRT_ALL_TO_ALL ? desc.shift : 0; }

/// Rows for which a member has memory: of its block of tokens, and of its block of experts.
int64_t mostRowsOfTokens(const pcrt_move_desc &desc, int n);
int64_t mostRowsOfExperts(const pcrt_move_desc &desc, int n);

/// Why a move cannot be one of rows; empty where it can, or does not say that it is.
std::string checkRows(const pcrt_move_desc &desc);

/// Rows that follow each other in the buffer of the member `source` and in that of the one that gets them.
struct RowSegment {
  int source;
  int64_t from, to, count;
};

/// How many rows a mask has of each block of tokens and each expert.
class RowCounts {
public:
  /// Counts. Null, or why not every row has a place. A mask that is no larger than an earlier one allocates nothing.
  const char *count(const pcrt_move_desc &desc, int members);

  /// Memory for the mask of `desc`.
  void reserve(const pcrt_move_desc &desc, int members);

  /// What member `me` gets, in the order of its buffer; its own rows are among it. Valid until the next call.
  const std::vector<RowSegment> &segments(int me);

  /// Rows that member `me` sends to others.
  int64_t sent(int me) const;

private:
  int64_t of(int64_t o, int member, int64_t expert) const {
    return counts[size_t((o * n + member) * experts + expert)];
  }

  bool back = false; ///< From experts to tokens.
  int n = 1;
  int64_t outer = 0, experts = 0;
  std::vector<int64_t> counts; ///< By outer index, block of tokens and expert.
  std::vector<int64_t> next;   ///< By member: where its next row lies.
  std::vector<RowSegment> list;
};

/// Copies the rows of member `me` from the buffers of all. Null, or what went wrong.
const char *pullRows(const pcrt_move_desc &desc, int n, int me, const char *const *ins, char *out,
                     const ParallelFor &parallelFor);

/// The counts of this thread.
RowCounts &rowCounts();

} // namespace pcrt

#endif // PCRT_COMM_ROWS_H
