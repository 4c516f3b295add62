//===- Members.h - Open local SGD: a run as one of several members --------===//
// With --meet HOST:PORT this run is one replica among others, which may join and leave. At the end of a round pc-meet
// computes the mean of the members' parameters (comm/MeetMessages.h). Each member then makes the outer step, and all
// get the same bits.
//===----------------------------------------------------------------------===//
#ifndef PCRT_REPLICAS_MEMBERS_H
#define PCRT_REPLICAS_MEMBERS_H

#include "comm/Comm.h"
#include "comm/MeetMessages.h"
#include "data/Options.h"
#include "device/Device.h"

namespace pcrt {

/// This member's connection with pc-meet. Every rank has one, with a socket of its own, and all call its methods in the
/// same order. If the connection is lost, they throw PCRT_PEER_LOST.
class Members {
public:
  /// Connects to pc-meet. Throws PCRT_USAGE, PCRT_PEER_LOST.
  Members(const Options &options, const Program &program, const std::string &programSum, Device &device, Comm &comm);
  ~Members();

  /// This member's share of a round: `steps` steps (fewer if the others wait for this member), whose samples begin at
  /// `firstSample`.
  struct Share {
    int64_t round = 0, steps = 0, firstSample = 0;
  };

  /// Joins with the state after `step` steps, or with the state of the other members if theirs is later.
  Share join(int64_t step, int64_t samples);
  /// Whether the other members wait for the end of this one's round. Call it between two steps.
  bool isAwaited();
  /// Sets the parameters to the mean over all members; this one has made `steps` steps in the round.
  void meet(int64_t steps);
  /// Waits for the next round.
  Share begin();
  /// Tells pc-meet that this member has made all its steps.
  void leave();

private:
  void connectTo(const std::string &address);
  void send(MeetKind kind, const void *fields, size_t bytes, const std::string &elements = {});
  MeetHead nextHead();
  void receive(void *to, size_t bytes);
  template <typename T> T receiveFields(const MeetHead &head, size_t elements);
  void handle(const MeetHead &head);
  bool isReadable() const;
  void giveState();
  void takeState(const MeetHead &head);
  Share waitForBegin();
  template <typename F> void forEachBlock(const char *state, F &&f, bool frozen = false) const;
  std::string blocksOf(const char *state, bool frozen = false) const;
  void setBlocks(const char *state, const char *from);
  uint64_t sharedSum() const;
  [[noreturn]] void lost(const std::string &why) const;

  const Program &program;
  Device &device;
  Comm &comm;
  std::string address, name, programSum;
  int socket = -1;
  int64_t round = 0, elements = 0;
  bool awaited = false; ///< Rank 0.
};

} // namespace pcrt

#endif // PCRT_REPLICAS_MEMBERS_H
