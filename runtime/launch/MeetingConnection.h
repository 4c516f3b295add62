//===- MeetingConnection.h - A rank that meets others at pc-meet ----------===//
#ifndef PCRT_LAUNCH_MEETINGCONNECTION_H
#define PCRT_LAUNCH_MEETINGCONNECTION_H

#include "comm/Admission.h"
#include "comm/MeetMessages.h"

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace pcrt {

struct MeetingMember;

/// The connection of a rank that has been admitted. What is sent waits here until the other end takes it, so that
/// nobody holds up the others; what comes is checked before memory is allocated by a length in it.
class MeetingConnection {
public:
  using Elements = std::shared_ptr<const std::string>;
  using Take = std::function<void(MeetKind kind, std::string_view body)>;

  explicit MeetingConnection(Admitted admitted);

  int socket() const { return rank.socket.fd; }
  const Greeting &greeting() const { return rank.greeting; }
  bool waitsToSend() const { return !out.empty(); }

  /// Calls `take` for every whole message that has come; its length is the one that its kind has. Anything else, and
  /// the end of the connection, sets `ends`.
  void read(const Take &take);
  /// Sends what the other end takes without waiting.
  void write();
  void send(MeetKind kind, const void *fields, size_t bytes, const Elements &elements = {});

  const double since;
  std::optional<MeetHello> hello;
  MeetingMember *member = nullptr;
  bool left = false, ends = false; ///< It said so; to be closed when all is sent.
  std::optional<MeetArrive> arrived;
  std::string elements; ///< What it arrived with.

private:
  std::optional<uint64_t> lengthOf(MeetKind kind) const;
  void takeWhole(const Take &take);

  Admitted rank;
  std::string in;
  std::deque<Elements> out;
  size_t sent = 0; ///< Of out's first.
};

} // namespace pcrt

#endif // PCRT_LAUNCH_MEETINGCONNECTION_H
