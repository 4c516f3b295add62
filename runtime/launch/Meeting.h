//===- Meeting.h - Where members of open rounds meet ----------------------===//
#ifndef PCRT_LAUNCH_MEETING_H
#define PCRT_LAUNCH_MEETING_H

#include <string>

namespace pcrt {

struct MeetingOptions {
  std::string listen = "127.0.0.1"; ///< An address of this machine: 0.0.0.0 or :: for all.
  int port = 0;                     ///< 0: any; it is printed.
  int minMembers = 1;               ///< No round begins or ends with fewer.
  std::string log;                  ///< A line of JSON for each round; empty: none.
  std::string replay;  ///< The log of an earlier meeting, whose members' rounds are formed again; empty: none.
  double patience = 1; ///< Seconds at least that the last ones are waited for.
};

/// Serves until all members have left. An exit code; problems are told on standard error.
int serveMeeting(const MeetingOptions &options);

} // namespace pcrt

#endif // PCRT_LAUNCH_MEETING_H
