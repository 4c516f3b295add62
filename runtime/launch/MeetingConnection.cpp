//===- MeetingConnection.cpp - A connection of pc-meet --------------------===//
// lengthOf is the protocol's state machine: it knows which kinds a rank may send now, and their exact lengths.
//===----------------------------------------------------------------------===//
#include "launch/MeetingConnection.h"
#include "comm/ShmControl.h"
#include "comm/TcpMeeting.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>

using namespace pcrt;

MeetingConnection::MeetingConnection(Admitted admitted) : since(monotonicSeconds()), rank(std::move(admitted)) {
  configureSocket(socket());
}

/// The length of a message of this kind; nullopt if the rank may not send one now.
std::optional<uint64_t> MeetingConnection::lengthOf(MeetKind kind) const {
  if (!hello)
    return kind == MeetKind::Hello ? std::optional(sizeof(MeetHello)) : std::nullopt;
  switch (kind) {
  case MeetKind::Arrive:
    return sizeof(MeetArrive) + 4 * uint64_t(hello->elements);
  case MeetKind::State:
    return sizeof(MeetState) + 8 * uint64_t(hello->elements);
  case MeetKind::Leave:
    return 0;
  default:
    return std::nullopt;
  }
}

void MeetingConnection::takeWhole(const Take &take) {
  size_t at = 0;
  while (!ends && in.size() - at >= sizeof(MeetHead)) {
    MeetHead head;
    memcpy(&head, in.data() + at, sizeof head);
    ends = lengthOf(head.kind) != head.bytes;
    if (ends || in.size() - at - sizeof head < head.bytes)
      break;
    take(head.kind, std::string_view(in).substr(at + sizeof head, head.bytes));
    at += sizeof head + head.bytes;
  }
  in.erase(0, at);
}

void MeetingConnection::read(const Take &take) {
  char bytes[1 << 16];
  for (int turn = 0; turn < 64 && !ends; ++turn) { // then the others
    ssize_t got = recv(socket(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    if (got <= 0) {
      ends = true;
      out.clear();
      return;
    }
    in.append(bytes, size_t(got));
    takeWhole(take);
  }
}

void MeetingConnection::write() {
  while (!out.empty()) {
    const std::string &first = *out.front();
    ssize_t went = ::send(socket(), first.data() + sent, first.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (went < 0) {
      if (errno != EAGAIN && errno != EINTR) {
        ends = true;
        out.clear();
      }
      return;
    }
    sent += size_t(went);
    if (sent == first.size()) {
      out.pop_front();
      sent = 0;
    }
  }
}

void MeetingConnection::send(MeetKind kind, const void *fields, size_t bytes, const Elements &elements) {
  MeetHead head{kind, 0, bytes + (elements ? elements->size() : 0)};
  std::string text(reinterpret_cast<const char *>(&head), sizeof head);
  text.append(static_cast<const char *>(fields), bytes);
  out.push_back(std::make_shared<const std::string>(std::move(text)));
  if (elements)
    out.push_back(elements);
}
