//===- Sockets.h - Connections between machines ---------------------------===//
// Small wrappers of the socket calls for handshakes and control messages. Deadlines are in seconds of
// monotonicSeconds().
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_SOCKETS_H
#define PCRT_COMM_SOCKETS_H

#include <string>
#include <unistd.h>
#include <utility>

namespace pcrt {

/// A socket, or another file descriptor, that closes itself.
struct Socket {
  int fd = -1;
  Socket() = default;
  explicit Socket(int fd) : fd(fd) {}
  Socket(Socket &&other) noexcept : fd(other.release()) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~Socket() {
    if (fd >= 0)
      close(fd);
  }
  int release() { return std::exchange(fd, -1); }
};

/// Waits until one of `events` of poll(2) has happened; returns false after `deadline`.
bool waitFor(int fd, short events, double deadline);

/// Reads exactly `bytes` bytes. Returns false if the connection has ended, or if the time is up.
bool receiveBytes(int fd, void *to, size_t bytes, double deadline);

/// Sends a message that fits an empty socket buffer. Returns false if this failed.
bool sendBytes(int fd, const void *from, size_t bytes);

/// Returns a blocking connection to `host` (a name or an address), or -1 with errno set.
Socket connectTo(const std::string &host, int port, double deadline);

/// Returns a non-blocking listening socket, or -1 with errno set. `address` is an address or "localhost"; if it is
/// empty, the socket listens at all addresses of this machine. If `port` is 0, the socket gets any free port.
Socket listenAt(const std::string &address, int port);

/// The port of a listening socket.
int portOf(const Socket &listener);

/// The address of the machine at the other end: "10.0.0.7".
std::string peerOf(const Socket &connection);

} // namespace pcrt

#endif // PCRT_COMM_SOCKETS_H
