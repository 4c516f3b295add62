//===- Sockets.cpp - Connections between machines -------------------------===//
// Connections are opened without blocking, so that a deadline holds for each address of a name. Listening on all
// addresses uses one IPv6 socket that also accepts IPv4, if the system has IPv6.
//===----------------------------------------------------------------------===//
#include "comm/Sockets.h"
#include "comm/ShmControl.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

using namespace pcrt;

bool pcrt::waitFor(int fd, short events, double deadline) {
  for (;;) {
    double left = deadline - monotonicSeconds();
    pollfd entry{fd, events, 0};
    int ready = poll(&entry, 1, left > 0 ? int(std::min(left, 1e6) * 1000) + 1 : 0);
    if (ready > 0)
      return true;
    if (left <= 0 || (ready < 0 && errno != EINTR))
      return false;
  }
}

bool pcrt::receiveBytes(int fd, void *to, size_t bytes, double deadline) {
  for (size_t got = 0; got < bytes;) {
    if (!waitFor(fd, POLLIN, deadline))
      return false;
    ssize_t count = recv(fd, static_cast<char *>(to) + got, bytes - got, 0);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    got += size_t(count);
  }
  return true;
}

bool pcrt::sendBytes(int fd, const void *from, size_t bytes) {
  return send(fd, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == ssize_t(bytes);
}

namespace {
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
} // namespace

/// The addresses of `host`; null, with errno set, if it has none. "localhost" is one address, so that callers find its
/// listener.
static Addresses addressesOf(const std::string &host, int port, int flags) {
  const char *node = host.empty() ? nullptr : host == "localhost" ? "127.0.0.1" : host.c_str();
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  if (getaddrinfo(node, std::to_string(port).c_str(), &hints, &found) != 0) {
    found = nullptr;
    errno = EHOSTUNREACH;
  }
  return {found, freeaddrinfo};
}

Socket pcrt::connectTo(const std::string &host, int port, double deadline) {
  Addresses found = addressesOf(host, port, 0);
  for (addrinfo *at = found.get(); at; at = at->ai_next) {
    Socket peer(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (peer.fd < 0)
      continue;
    int problem = connect(peer.fd, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (problem == EINPROGRESS) {
      socklen_t length = sizeof problem;
      if (!waitFor(peer.fd, POLLOUT, deadline))
        problem = ETIMEDOUT;
      else
        getsockopt(peer.fd, SOL_SOCKET, SO_ERROR, &problem, &length);
    }
    if (problem == 0) {
      fcntl(peer.fd, F_SETFL, fcntl(peer.fd, F_GETFL) & ~O_NONBLOCK);
      return peer;
    }
    close(peer.release());
    errno = problem;
  }
  return Socket();
}

Socket pcrt::listenAt(const std::string &address, int port) {
  Addresses found = addressesOf(address, port, AI_PASSIVE);
  // An IPv6 socket also accepts IPv4, so it comes first.
  for (int family : {AF_INET6, AF_INET})
    for (addrinfo *at = found.get(); at; at = at->ai_next) {
      if (at->ai_family != family)
        continue;
      Socket listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      int yes = 1, no = 0;
      setsockopt(listener.fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      if (family == AF_INET6)
        setsockopt(listener.fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
      if (listener.fd >= 0 && bind(listener.fd, at->ai_addr, at->ai_addrlen) == 0 &&
          listen(listener.fd, SOMAXCONN) == 0)
        return listener;
    }
  return Socket();
}

int pcrt::portOf(const Socket &listener) {
  sockaddr_in6 address{};
  socklen_t length = sizeof address;
  getsockname(listener.fd, reinterpret_cast<sockaddr *>(&address), &length);
  return ntohs(address.sin6_port); // the port is at the same place in IPv4 and IPv6 addresses
}

std::string pcrt::peerOf(const Socket &connection) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char host[NI_MAXHOST] = "an unknown address";
  if (getpeername(connection.fd, reinterpret_cast<sockaddr *>(&address), &length) == 0)
    getnameinfo(reinterpret_cast<sockaddr *>(&address), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}
