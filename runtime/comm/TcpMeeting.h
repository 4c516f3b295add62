//===- TcpMeeting.h - Ranks of several machines find each other -----------===//
// Every rank connects to rank 0, at the address that the launcher's environment gives. The port is PCRT_PORT, if it is
// set. Otherwise it is MASTER_PORT, unless torchrun itself listens there. Otherwise it is one of a few ports derived
// from the name of the run. Both ends prove that they know the run's secret before they accept each other.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_TCPMEETING_H
#define PCRT_COMM_TCPMEETING_H

#include "comm/Environment.h"
#include "pcrt/pcrt.h"

namespace pcrt {

/// The place where rank 0 listens.
struct MeetingPoint {
  std::string host;       ///< The name or address of rank 0's machine, as the others reach it.
  std::vector<int> ports; ///< The ports, in the order in which they are tried.
  uint64_t run = 0;       ///< A hash of the run's name.
  std::string secret;     ///< The secret of the run; empty: there is none.
};

/// Reads the launcher's variables and the secret from the environment. On failure returns false, and `error` says what
/// is missing.
bool findMeetingPoint(const Place &place, MeetingPoint *point, std::string *error);

/// A meeting point at `host`, with ports derived from the run's name, and without a secret.
MeetingPoint meetingPointAt(const std::string &host, const Place &place);

/// The first host of a list as Slurm writes it: "gpu[03-06,9],login1" gives "gpu03".
std::string firstHost(const std::string &list);

/// A rank's end of a connection to another one.
struct Peer {
  int socket = -1;
  int32_t process = 0;   ///< Its process id, for messages.
  std::string host = ""; ///< The name of its machine, for messages.
};

/// Lets a connection send small messages at once, and notice within seconds that the other end's machine is gone.
void configureSocket(int fd);

/// Connects the ranks. On rank 0, `peers` gets a connection to every other rank; on other ranks, one to rank 0. Waits
/// for the other ranks up to timeoutSeconds(); the message of PCRT_TIMEOUT names the ranks that did not come.
pcrt_status meetOverTcp(const Place &place, const MeetingPoint &point, std::vector<Peer> *peers, std::string *error);

} // namespace pcrt

#endif // PCRT_COMM_TCPMEETING_H
