//===- Connection.cpp - A connection to a client that is not trusted ------===//
// Sockets are polled: select() cannot wait for more than 1024 of them.
//===----------------------------------------------------------------------===//
#include "serve/Connection.h"

#include <poll.h>

using namespace pcrt;

/// Waits until `events` is possible; also returns true if the other end is closed, so that a call finds out.
static bool pollFor(int fd, short events, std::chrono::duration<double> most) {
  pollfd one{fd, events, 0};
  int milliseconds = int(std::min(most.count(), 1e6) * 1000);
  int ready;
  while ((ready = poll(&one, 1, std::max(milliseconds, 0))) < 0 && errno == EINTR)
    ;
  return ready > 0;
}

bool Connection::canRead(Seconds most) const { return pollFor(fd, POLLIN, most); }
bool Connection::canWrite(Seconds most) const { return pollFor(fd, POLLOUT, most); }

bool Connection::isGone() const {
  pollfd one{fd, POLLRDHUP, 0};
  return poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

Connection::~Connection() {
  shutdown(fd, SHUT_WR);
  // If bytes of the client are left unread, close() resets the connection, and the client may not see the answer.
  auto end = Clock::now() + std::chrono::milliseconds(lingers ? 500 : 0);
  while (canRead(end - Clock::now()) && Clock::now() < end && recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) > 0)
    ;
  close(fd);
}

ssize_t Connection::read(char *to, size_t size) {
  if (begin == end) {
    Seconds time = deadline - Clock::now();
    if (left == 0 || time.count() <= 0 || !canRead(time))
      return -1;
    ssize_t count = recv(fd, buffer, std::min(sizeof buffer, left), MSG_DONTWAIT);
    if (count <= 0)
      return count;
    begin = 0, end = size_t(count), left -= end;
  }
  size = std::min(size, end - begin);
  std::copy_n(buffer + begin, size, to);
  begin += size;
  return ssize_t(size);
}

ssize_t Connection::write(const char *from, size_t size) {
  auto end = Clock::now() + patience;
  for (size_t done = 0; done < size;) {
    if (!canWrite(end - Clock::now()))
      return -1;
    ssize_t count = send(fd, from + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0)
      return -1;
    done += size_t(count);
  }
  return ssize_t(size);
}
