//===- MeetingConnection.h - A connection of pc-meet ----------------------===//
// The buffers and the protocol state of one rank that is connected to pc-meet.
//===----------------------------------------------------------------------===//
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

/// The connection of a rank that has been admitted. It owns the socket. Messages to the rank wait here until it takes
/// them, so that no rank holds up the others; messages from it are checked before memory is allocated by their lengths.
class MeetingConnection {
public:
  using Elements = std::shared_ptr<const std::string>;
  using Take = std::function<void(MeetKind kind, std::string_view body)>;

  explicit MeetingConnection(Admitted admitted);

  int socket() const { return rank.socket.fd; }
  const Greeting &greeting() const { return rank.greeting; }
  bool waitsToSend() const { return !out.empty(); }

  /// Calls `take` for every complete message that has come. A message has the length of its kind. Anything else, and
  /// the end of the connection, sets `ends`.
  void read(const Take &take);
  /// Sends as much as the other end takes without waiting.
  void write();
  void send(MeetKind kind, const void *fields, size_t bytes, const Elements &elements = {});

  const double since;
  std::optional<MeetHello> hello;
  MeetingMember *member = nullptr;
  bool left = false, ends = false; ///< It said that it leaves; it is closed when everything is sent.
  std::optional<MeetArrive> arrived;
  std::string elements; ///< The parameters with which it arrived.

private:
  std::optional<uint64_t> lengthOf(MeetKind kind) const;
  void takeWhole(const Take &take);

  Admitted rank;
  std::string in;
  std::deque<Elements> out;
  size_t sent = 0; ///< Bytes sent of the first entry of `out`.
};

} // namespace pcrt

#endif // PCRT_LAUNCH_MEETINGCONNECTION_H
