//===- Admission.cpp - Accepts callers that know the secret ---------------===//
// Each visitor has a small state machine: it greets, proves that it knows the secret, and confirms. serve() first reads
// the data that have arrived, with one epoll_wait, and then closes visitors that are too slow. The order matters,
// because this process itself may have been suspended.
//===----------------------------------------------------------------------===//
#include "comm/Admission.h"
#include "base/Failure.h"
#include "comm/ShmControl.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/epoll.h>
#include <sys/socket.h>

using namespace pcrt;

Admission::Admission(Socket listener, AdmissionRules rules)
    : listener(std::move(listener)), epoll(epoll_create1(EPOLL_CLOEXEC)), rules(std::move(rules)) {
  epoll_event event{EPOLLIN, {}};
  event.data.ptr = nullptr;
  epoll_ctl(epoll.fd, EPOLL_CTL_ADD, this->listener.fd, &event);
}

void Admission::warn(bool *told, const std::string &what) {
  if (!std::exchange(*told, true))
    fprintf(stderr, "warning: %s: %s; later ones are not reported\n", rules.name.c_str(), what.c_str());
}

std::vector<Admitted> Admission::serve() {
  double now = monotonicSeconds();
  if (restsUntil && now >= restsUntil) {
    restsUntil = 0;
    epoll_event event{EPOLLIN, {}};
    epoll_ctl(epoll.fd, EPOLL_CTL_MOD, listener.fd, &event);
  }
  epoll_event events[mostVisitors];
  int count = epoll_wait(epoll.fd, events, int(mostVisitors), 0);
  bool anyNew = false;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.ptr)
      advance(*static_cast<Visitor *>(events[i].data.ptr));
    else
      anyNew = true;
  }
  for (Visitor &visitor : visitors)
    if (visitor.state < Visitor::Done && now - visitor.since > patienceSeconds) {
      visitor.state = Visitor::Failed;
      warn(&toldOfTime, "the connection from " + peerOf(visitor.socket) +
                            " was closed because it did not identify itself within " +
                            std::to_string(int(patienceSeconds)) + " s");
    }
  std::vector<Admitted> admitted;
  for (Visitor &visitor : visitors)
    if (visitor.state == Visitor::Done) {
      epoll_ctl(epoll.fd, EPOLL_CTL_DEL, visitor.socket.fd, nullptr);
      admitted.push_back({std::move(visitor.socket), visitor.theirs});
    }
  visitors.remove_if([](const Visitor &visitor) { return visitor.state >= Visitor::Done; });
  if (anyNew)
    acceptSome();
  return admitted;
}

/// Makes room by closing the oldest connection that has not proved the secret. Returns false if there is none.
bool Admission::dropOldest() {
  auto oldest = std::find_if(visitors.begin(), visitors.end(),
                             [](const Visitor &visitor) { return visitor.state < Visitor::Confirms; });
  if (oldest == visitors.end())
    return false;
  warn(&toldOfTime, "there are too many connections at once; the one from " + peerOf(oldest->socket) +
                        " was closed before it identified itself");
  visitors.erase(oldest);
  return true;
}

/// Accepts a few callers at a time, so that earlier ones are served in between.
void Admission::acceptSome() {
  for (int i = 0; i < 16; ++i) {
    Socket socket(accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    bool noRoom = socket.fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
    if (noRoom && !dropOldest()) {
      warn(&toldOfFiles, withErrno("cannot accept a connection") + " (see ulimit -n); it has to wait");
      restsUntil = monotonicSeconds() + restSeconds;
      epoll_event event{0, {}};
      epoll_ctl(epoll.fd, EPOLL_CTL_MOD, listener.fd, &event);
      return;
    }
    if (socket.fd < 0 && errno == EAGAIN)
      return;
    if (socket.fd < 0)
      continue; // the caller has closed the connection, or there is room now
    auto isNew = [](const Visitor &visitor) { return visitor.state < Visitor::Confirms; };
    if (size_t(std::count_if(visitors.begin(), visitors.end(), isNew)) >= mostVisitors)
      dropOldest();
    Visitor &visitor = visitors.emplace_back();
    visitor.socket = std::move(socket);
    visitor.since = monotonicSeconds();
    epoll_event event{EPOLLIN, {}};
    event.data.ptr = &visitor;
    epoll_ctl(epoll.fd, EPOLL_CTL_ADD, visitor.socket.fd, &event);
  }
}

/// Reads the bytes that have arrived of a message of `bytes` bytes; true if it is complete.
bool Admission::receive(Visitor &visitor, void *to, size_t bytes) {
  ssize_t count = recv(visitor.socket.fd, static_cast<char *>(to) + visitor.got, bytes - visitor.got, 0);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
    visitor.state = Visitor::Failed;
  visitor.got += size_t(std::max<ssize_t>(count, 0));
  if (visitor.got < bytes)
    return false;
  visitor.got = 0;
  return true;
}

void Admission::advance(Visitor &visitor) {
  char isIn;
  if (visitor.state == Visitor::Greets && receive(visitor, &visitor.theirs, sizeof visitor.theirs))
    takeGreeting(visitor);
  if (visitor.state == Visitor::Proves && receive(visitor, visitor.proof.data(), visitor.proof.size()))
    takeProof(visitor);
  if (visitor.state == Visitor::Confirms && receive(visitor, &isIn, 1))
    visitor.state = Visitor::Done;
}

void Admission::takeGreeting(Visitor &visitor) {
  visitor.mine = rules.greeting;
  // The name must end in a zero, because it becomes part of messages. The bytes that were sent are later a part of the
  // proof.
  bool good = visitor.theirs.protocol == rules.greeting.protocol && visitor.theirs.run == rules.greeting.run &&
              visitor.theirs.port == rules.greeting.port && !visitor.theirs.name[sizeof visitor.theirs.name - 1] &&
              rules.expects(visitor.theirs) && drawBytes(&visitor.mine.random) &&
              sendBytes(visitor.socket.fd, &visitor.mine, sizeof visitor.mine);
  visitor.state = good ? Visitor::Proves : Visitor::Failed;
}

void Admission::takeProof(Visitor &visitor) {
  auto proof = [&](Side side, Verdict verdict) {
    return proofOf(side, rules.secret, visitor.theirs, visitor.mine, verdict);
  };
  if (!areSame(visitor.proof, proof(Side::Caller, Verdict::Welcome))) {
    visitor.state = Visitor::Failed;
    warn(&toldOfProof, "the connection from " + peerOf(visitor.socket) + " that claims to be rank " +
                           std::to_string(visitor.theirs.rank) + " of '" + printable(visitor.theirs.name) +
                           "' was closed because its PCRT_SECRET is different");
    return;
  }
  Verdict verdict = rules.judges(visitor.theirs);
  Answer answer{verdict, proof(Side::Host, verdict)};
  bool good = sendBytes(visitor.socket.fd, &answer, sizeof answer) && verdict == Verdict::Welcome;
  visitor.state = good ? Visitor::Confirms : Visitor::Failed;
}
