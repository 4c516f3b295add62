//===- Strangers.h - Connections of callers that know everything except the secret -===//
// For attacks.cpp and tests of pc-meet.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TEST_STRANGERS_H
#define PCRT_TEST_STRANGERS_H

#include "comm/Handshake.h"
#include "comm/Sockets.h"

#include <deque>
#include <random>
#include <string>
#include <vector>

/// Calls a listener of this machine at `port` in every way that needs no secret. It owns its connections.
class Strangers {
public:
  static constexpr int kinds = 20;

  /// `greeting` is the first message of a rank or member. `recorded` is a conversation on another connection to the
  /// listener.
  Strangers(int port, const pcrt::Greeting &greeting, std::string recorded)
      : port(port), greeting(greeting), recorded(std::move(recorded)) {}

  /// One connection of a kind from 0 to kinds - 1; many stay open. Returns false if no process listens.
  bool call(int kind);

private:
  void say(const void *data, size_t bytes);
  void say(const std::string &text) { say(text.data(), text.size()); }
  void sayGreeting(const pcrt::Greeting &mine) { say(&mine, sizeof mine); }
  /// Returns the host's answer, if it comes soon.
  std::string hear(size_t bytes);
  std::string junk(size_t bytes);
  void reset();

  int port;
  pcrt::Greeting greeting;
  std::string recorded;
  std::mt19937 draw{7};
  pcrt::Socket connection;
  std::deque<pcrt::Socket> open; ///< Connections that are kept, the oldest first.
};

/// Plays a caller that knows the secret, up to the proof, and then hangs up. Returns the bytes that it sent.
std::string recordCall(int port, const std::string &secret, const pcrt::Greeting &greeting);

/// A port of the loopback interface on which no process listens.
int freePort();

#endif // PCRT_TEST_STRANGERS_H
