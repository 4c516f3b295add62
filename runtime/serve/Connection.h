//===- Connection.h - A connection to a client that is not trusted --------===//
// cpp-httplib has a time limit for every byte, so a client that sends a byte now and then holds a thread forever. Here
// a request as a whole has a deadline and a number of bytes, and the server sees that a client is gone.
//===----------------------------------------------------------------------===//
#ifndef PCRT_SERVE_CONNECTION_H
#define PCRT_SERVE_CONNECTION_H

#include <chrono>
#include <httplib.h>

namespace pcrt {

/// One connection. It owns the socket. One thread uses it.
class Connection : public httplib::Stream {
public:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  Connection(socket_t fd, Seconds patience) : fd(fd), patience(patience) {}
  /// Closes the connection.
  ~Connection() override;
  Connection(const Connection &) = delete;
  Connection &operator=(const Connection &) = delete;

  /// Allows `bytes` more bytes to be read, in the time that a client has to send them.
  void allow(size_t bytes) {
    left = bytes, deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
  }
  /// Waits for the first byte of a request. Returns false if there is none.
  bool waits(Seconds most) const { return begin < end || canRead(most); }
  /// Whether the client has closed its end.
  bool isGone() const;

  bool is_readable() const override { return begin < end || canRead(Seconds(0)); }
  bool is_writable() const override { return !isGone() && canWrite(patience); }
  ssize_t read(char *to, size_t size) override;
  /// Sends everything, or fails if the client does not take it in time.
  ssize_t write(const char *from, size_t size) override;
  void get_remote_ip_and_port(std::string &, int &) const override {}
  void get_local_ip_and_port(std::string &, int &) const override {}
  socket_t socket() const override { return fd; }

  /// Set if the rest of the request was not read, so that no other request can follow.
  bool mustClose = false;
  /// Set if the client gets time to read the last bytes before the connection is closed.
  bool lingers = true;

private:
  bool canRead(Seconds most) const;
  bool canWrite(Seconds most) const;

  socket_t fd;
  Seconds patience;
  Clock::time_point deadline;
  size_t left = 0, begin = 0, end = 0;
  char buffer[4096];
};

} // namespace pcrt

#endif // PCRT_SERVE_CONNECTION_H
