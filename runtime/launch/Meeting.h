//===- Meeting.h - The server at which members of open rounds meet --------===//
// The implementation of pc-meet; comm/MeetMessages.h has the protocol.
//===----------------------------------------------------------------------===//
#ifndef PCRT_LAUNCH_MEETING_H
#define PCRT_LAUNCH_MEETING_H

#include <string>

namespace pcrt {

/// The command line of pc-meet.
struct MeetingOptions {
  std::string listen = "127.0.0.1"; ///< An address of this machine: 0.0.0.0 or :: for all.
  int port = 0;                     ///< 0: any; it is printed.
  int minMembers = 1;               ///< A round needs at least this number of members to begin and to end.
  std::string log;                  ///< A line of JSON for each round; empty: none.
  std::string replay;  ///< The log of an earlier meeting, whose rounds are repeated with the same members; empty: none.
  double patience = 1; ///< The least seconds of waiting for the last members of a round.
};

/// Serves until all members have left. Returns an exit code; prints problems to standard error.
int serveMeeting(const MeetingOptions &options);

} // namespace pcrt

#endif // PCRT_LAUNCH_MEETING_H
