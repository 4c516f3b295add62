//===- Rows.h - The all_to_all of rows that a mask chooses ----------------===//
// Experts of a mixture are on other ranks than tokens. Only those pairs of token and expert that a mask chooses exist
// in memory, as rows. Every member has the mask of all tokens and experts. So it can compute the place of any row on
// any member, and no counts have to be sent.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_ROWS_H
#define PCRT_COMM_ROWS_H

#include "comm/Comm.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pcrt {

/// The largest number of experts per token in a move of rows; 0 for other moves.
inline int64_t routedOf(const pcrt_move_desc &desc) { return desc.kind == PCRT_ALL_TO_ALL ? desc.shift : 0; }

/// The following functions return the number of rows for which a member has memory: for its block of tokens, and for
/// its block of experts.
int64_t mostRowsOfTokens(const pcrt_move_desc &desc, int n);
int64_t mostRowsOfExperts(const pcrt_move_desc &desc, int n);

/// The error in a move of rows; "" if there is none, or if the move is of another kind.
std::string checkRows(const pcrt_move_desc &desc);

/// `count` rows that are contiguous in two buffers. In the buffer of the member `source`, they begin at row `from`. In
/// the buffer of the member that gets them, they begin at row `to`.
struct RowSegment {
  int source;
  int64_t from, to, count;
};

/// The numbers of rows that a mask chooses for each block of tokens and each expert, and the segments that follow from
/// these numbers. One thread uses an object at a time. count() replaces the previous move. After reserve(), the object
/// allocates nothing.
class RowCounts {
public:
  /// Counts the rows of `desc`. Returns null, or the reason why not every row has a place. Allocates nothing if an
  /// earlier mask was at least as large.
  const char *count(const pcrt_move_desc &desc, int members);
  /// Like count(), from counts that were computed for chunks of tokens: [block of tokens, chunk, expert].
  const char *take(const pcrt_move_desc &desc, int members, const int32_t *ofChunks, int64_t chunks);

  /// Allocates memory for the mask of `desc`.
  void reserve(const pcrt_move_desc &desc, int members);

  /// The rows that member `me` gets, including its own, in the order of its buffer. Valid until the next call.
  const std::vector<RowSegment> &segments(int me);

  /// Rows that member `me` sends to others.
  int64_t sent(int me) const;

private:
  void begin(const pcrt_move_desc &desc, int members);
  const char *check(const pcrt_move_desc &desc) const;
  int64_t of(int64_t o, int member, int64_t expert) const {
    return counts[size_t((o * n + member) * experts + expert)];
  }

  bool back = false; ///< From experts to tokens.
  int n = 1;
  int64_t outer = 0, experts = 0;
  std::vector<int64_t> counts; ///< Numbers of rows: [outer index, block of tokens, expert].
  std::vector<int64_t> next;   ///< The place of each member's next row.
  std::vector<RowSegment> list;
};

/// Copies the rows of member `me` from the buffers of all members. Returns null, or what went wrong.
const char *pullRows(const pcrt_move_desc &desc, int n, int me, const char *const *ins, char *out,
                     const ParallelFor &parallelFor);

/// The RowCounts of this thread.
RowCounts &rowCounts();

} // namespace pcrt

#endif // PCRT_COMM_ROWS_H
