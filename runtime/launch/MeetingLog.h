//===- MeetingLog.h - The log of a meeting --------------------------------===//
// The log has lines of JSON that say what each member did in each round. A replay forms the same rounds.
//===----------------------------------------------------------------------===//
#ifndef PCRT_LAUNCH_MEETINGLOG_H
#define PCRT_LAUNCH_MEETINGLOG_H

#include <cstdint>
#include <map>
#include <string>

namespace pcrt {

/// A member's part of a round.
struct MeetingShare {
  int64_t steps, firstSample;
};

/// The rounds of an earlier meeting, and each member's share of each.
struct LoggedRounds {
  std::map<int64_t, std::map<std::string, MeetingShare>> rounds;

  bool has(int64_t round, const std::string &name) const {
    auto found = rounds.find(round);
    return found != rounds.end() && found->second.count(name);
  }
  /// Reads a log. Throws PCRT_BAD_DATA.
  static LoggedRounds read(const std::string &path);
};

/// A file with a line of JSON for each round. It owns the descriptor.
class MeetingLog {
public:
  MeetingLog() = default;
  ~MeetingLog();
  MeetingLog(const MeetingLog &) = delete;
  MeetingLog &operator=(const MeetingLog &) = delete;

  /// Opens the file; lines are appended to it. Throws PCRT_RESOURCE.
  void open(const std::string &path);
  /// Appends a line and syncs it to the disk; does nothing without a file. A line that cannot be written is left out,
  /// with a warning for the first one.
  void append(const std::string &line);

private:
  std::string path;
  int fd = -1;
  bool warned = false;
};

} // namespace pcrt

#endif // PCRT_LAUNCH_MEETINGLOG_H
