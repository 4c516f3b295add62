//===- MeetMessages.h - What members of open rounds say to pc-meet --------===//
// Open local SGD: members (runs of one program) come and go, and meet at the end of each round at pc-meet. Every rank
// of a member has a connection of its own, and sends and gets its own part of the parameters. After the handshake
// (Handshake.h) a message is a Head, the struct of its kind, and elements of f32; all little-endian.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_MEETMESSAGES_H
#define PCRT_COMM_MEETMESSAGES_H

#include <cstdint>

namespace pcrt {

constexpr uint64_t meetFormat = 0x3154454d4350; // "PCMET1"

enum class MeetKind : uint32_t {
  Hello = 1, ///< From a rank: Hello.
  Begin,     ///< To one: Begin.
  Close,     ///< To rank 0: the others wait; the round ends after the step that is under way.
  Arrive,    ///< From a rank: Arrive, and its parameters after the steps of the round.
  Mean,      ///< To one: their mean, weighted by steps.
  Ask,       ///< To one: its State is wanted, by one who joins.
  State,     ///< From one, and to one who joins: State, shared parameters, and outer momentum.
  Leave,     ///< From a rank: its member has done all its steps.
  Refuse,    ///< To one: a text; the connection ends.
};

struct MeetHead {
  MeetKind kind = MeetKind::Hello;
  uint32_t reserved = 0;
  uint64_t bytes = 0; ///< After the head.
};

struct MeetHello {
  uint64_t format = meetFormat;
  char name[64] = {}, program[64] = {}; ///< Of the member; sum of the executable.
  int32_t rank = 0, size = 0;
  int64_t round = 0;    ///< The one that it could begin with: as many as it has after it.
  int64_t every = 0;    ///< Steps of a round,
  int64_t batch = 0;    ///< samples of a step,
  int64_t samples = 0;  ///< and how many it knows to have been read.
  int64_t elements = 0; ///< Of this rank's parameters.
  uint64_t sum = 0;     ///< Of its shared parameters and outer momentum.
};

struct MeetBegin {
  int64_t round, steps;
  int64_t firstSample; ///< The member reads steps * batch samples from here.
};

struct MeetArrive {
  int64_t round, steps; ///< Steps made in it: what it counts.
  uint64_t sum;         ///< As Hello's, before this round is over.
};

struct MeetState {
  int64_t round; ///< The state is that before this one ends.
  uint64_t sum;
};

} // namespace pcrt

#endif // PCRT_COMM_MEETMESSAGES_H
