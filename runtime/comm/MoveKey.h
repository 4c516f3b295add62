//===- MoveKey.h - Describes what a rank is about to do with a group ------===//
// Members of a move compare their keys before they access each other's memory. So ranks that run different moves are
// found and named, and do not compute wrong results.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_MOVEKEY_H
#define PCRT_COMM_MOVEKEY_H

#include "comm/Comm.h"

namespace pcrt {

/// Identifies one move, barrier or exchange of control data. Keys are compared byte by byte, so they have no padding.
struct MoveKey {
  char name[96]; ///< The name of the op, cut if it is too long, and filled with zeros.
  int32_t kind, dtype, reduction, members;
  int64_t outer, extent, inner, middle, extent2;
  int64_t routed;     ///< In a move of rows: experts per token.
  uint64_t ranksHash; ///< A hash of the list of members.
};

/// makeKey(name) returns the key of a barrier or of control data, whose kind is -1. makeKey(desc) returns the key of a
/// move.
MoveKey makeKey(const char *name, const Group &group);
MoveKey makeKey(const pcrt_move_desc &desc, const Group &group);

/// Returns the key as text, such as "'all_reduce h.0.c_proj' (...)". For a barrier or control data, returns the bare
/// name; for a key of zeros, an empty text.
std::string describeKey(const MoveKey &key);

/// The difference between two keys of one move, as the end of a message: "rank 0 runs ..., rank 1 runs ...; ...".
std::string describeMismatch(int rank, const MoveKey &key, int other, const MoveKey &theirs);

/// A rank as text: "rank 3".
std::string rankName(int rank);

/// "group (dp: ranks 0, 1)".
std::string groupName(const Group &group);

/// Returns the group of all ranks of a run. Its slot is one that no program uses.
Group worldGroup(int rank, int size);

/// Seconds as text: "300" or "1.5".
std::string secondsText(double seconds);

constexpr int kMaxGroups = 64;              ///< Groups per rank.
constexpr int kWorldGroup = kMaxGroups - 1; ///< Group of barrier and allGatherBytes.

} // namespace pcrt

#endif // PCRT_COMM_MOVEKEY_H
