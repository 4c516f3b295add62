//===- MeetMessages.h - Messages between members of open rounds and pc-meet -===//
// In open local SGD, members (runs of one program) may join and leave, and synchronize at pc-meet at the end of each
// round. Every rank of a member has its own connection, and sends and gets its own part of the parameters. After the
// handshake (Handshake.h), a message is a MeetHead, the struct of the message's kind, and elements of f32; all are
// little-endian.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_MEETMESSAGES_H
#define PCRT_COMM_MEETMESSAGES_H

#include <cstdint>

namespace pcrt {

constexpr uint64_t meetFormat = 0x3154454d4350; // "PCMET1"

enum class MeetKind : uint32_t {
  Hello = 1, ///< From a rank: MeetHello.
  Begin,     ///< To a rank: MeetBegin.
  Close,     ///< To rank 0: the other members wait, so the round ends after the current step.
  Arrive,    ///< From a rank: MeetArrive, and its parameters after the steps of the round.
  Mean,      ///< To a rank: the mean of those parameters over members, weighted by steps.
  Ask,       ///< To a rank: a member that joins needs its State.
  State,     ///< From a rank, and to a rank that joins: MeetState, shared parameters, and outer momentum.
  Leave,     ///< From a rank: its member has done all its steps.
  Refuse,    ///< To a rank: a text; the connection ends.
};

/// The start of every message.
struct MeetHead {
  MeetKind kind = MeetKind::Hello;
  uint32_t reserved = 0;
  uint64_t bytes = 0; ///< After the head.
};

/// A rank introduces itself.
struct MeetHello {
  uint64_t format = meetFormat;
  char name[64] = {}, program[64] = {}; ///< The member's name; the sum of its executable.
  int32_t rank = 0, size = 0;
  int64_t round = 0;    ///< The round with which the member could begin: the number of rounds that it has finished.
  int64_t every = 0;    ///< Steps per round.
  int64_t batch = 0;    ///< Samples per step.
  int64_t samples = 0;  ///< The number of samples that have been read, as far as the member knows.
  int64_t elements = 0; ///< The elements of this rank's parameters.
  uint64_t sum = 0;     ///< A sum of its shared parameters and outer momentum.
};

/// A round begins.
struct MeetBegin {
  int64_t round, steps;
  int64_t firstSample; ///< The member reads steps * batch samples from here.
};

/// A rank has done the steps of a round.
struct MeetArrive {
  int64_t round, steps; ///< Steps made in the round, which are its weight in the mean.
  uint64_t sum;         ///< As in MeetHello, for the state before the end of this round.
};

/// The state with which a member joins.
struct MeetState {
  int64_t round; ///< The round whose end this state precedes.
  uint64_t sum;
};

} // namespace pcrt

#endif // PCRT_COMM_MEETMESSAGES_H
