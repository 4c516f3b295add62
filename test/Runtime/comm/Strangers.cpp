//===- Strangers.cpp - Connections of callers that know everything except the secret -===//
// Twenty kinds of bad calls: silence, garbage, wrong lengths, echoes, replays and proofs by other secrets.
//===----------------------------------------------------------------------===//
#include "Strangers.h"
#include "comm/ShmControl.h"

#include <cstring>
#include <sys/socket.h>

using namespace pcrt;

static const std::string loopback = "127.0.0.1";

int freePort() { return portOf(listenAt(loopback, 0)); }

std::string recordCall(int port, const std::string &secret, const Greeting &greeting) {
  double deadline = monotonicSeconds() + 60;
  for (;; usleep(1000)) {
    Socket connection = connectTo(loopback, port, deadline);
    Greeting mine = greeting, host;
    Answer answer;
    if (monotonicSeconds() > deadline)
      return {};
    if (connection.fd < 0 || !drawBytes(&mine.random) || !sendBytes(connection.fd, &mine, sizeof mine) ||
        !receiveBytes(connection.fd, &host, sizeof host, deadline))
      continue;
    Bytes32 proof = proofOf(Side::Caller, secret, mine, host, Verdict::Welcome);
    sendBytes(connection.fd, proof.data(), proof.size());
    if (!receiveBytes(connection.fd, &answer, sizeof answer, deadline))
      continue;
    return std::string(reinterpret_cast<char *>(&mine), sizeof mine) + std::string(proof.data(), proof.size()) + "\1";
  }
}

void Strangers::say(const void *data, size_t bytes) { send(connection.fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT); }

std::string Strangers::hear(size_t bytes) {
  std::string text(bytes, 0);
  return receiveBytes(connection.fd, text.data(), bytes, monotonicSeconds() + 0.5) ? text : "";
}

std::string Strangers::junk(size_t bytes) {
  std::string text(bytes, 0);
  for (char &c : text)
    c = char(draw());
  return text;
}

void Strangers::reset() {
  linger now{1, 0};
  setsockopt(connection.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close(connection.release());
}

bool Strangers::call(int kind) {
  connection = connectTo(loopback, port, monotonicSeconds() + 1);
  if (connection.fd < 0)
    return false;
  Greeting mine = greeting, host;
  memcpy(mine.random.data(), junk(32).data(), 32);
  auto hearGreeting = [&] {
    std::string text = hear(sizeof host);
    memcpy(&host, text.empty() ? junk(sizeof host).data() : text.data(), sizeof host);
  };
  auto sayProof = [&](Side side, const std::string &secret) {
    Bytes32 proof = proofOf(side, secret, mine, host, Verdict::Welcome);
    say(proof.data(), proof.size());
    say("\1");
  };
  switch (kind) {
  case 0: // idle
    break;
  case 1: // a port scanner
    close(connection.release());
    break;
  case 2:
    reset();
    break;
  case 3: // slow: a byte, and more of them with the next connections
    say("\3");
    for (const Socket &other : open)
      send(other.fd, "\3", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    break;
  case 4: // half a greeting
    say(&mine, sizeof mine / 2);
    break;
  case 5:
    say(&mine, sizeof mine - 1);
    close(connection.release());
    break;
  case 6:
    say(junk(sizeof mine));
    break;
  case 7:
    say(junk(1 << 16));
    break;
  case 8:
    say(std::string(4096, 0));
    break;
  case 9:
    say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    break;
  case 10: // an earlier version of the protocol
    mine.protocol = Protocol(uint64_t(mine.protocol) - 1);
    sayGreeting(mine);
    break;
  case 11: // the greeting, and no more
    sayGreeting(mine);
    break;
  case 12: // ... and no more to come
    sayGreeting(mine);
    shutdown(connection.fd, SHUT_WR);
    break;
  case 13:
    sayGreeting(mine);
    hearGreeting();
    say(junk(33));
    break;
  case 14: // as if there were no secret
    sayGreeting(mine);
    hearGreeting();
    sayProof(Side::Caller, "");
    break;
  case 15: // an echo
    sayGreeting(mine);
    say(hear(sizeof mine));
    break;
  case 16: { // sends the challenge of another connection as its own
    Socket other = std::move(connection);
    send(other.fd, &mine, sizeof mine, MSG_NOSIGNAL);
    receiveBytes(other.fd, &host, sizeof host, monotonicSeconds() + 0.5);
    connection = connectTo(loopback, port, monotonicSeconds() + 1);
    mine.random = host.random;
    sayGreeting(mine);
    std::string answer = hear(sizeof host);
    send(other.fd, answer.data(), answer.size(), MSG_NOSIGNAL);
    open.push_back(std::move(other));
    break;
  }
  case 17: // a recorded handshake
    say(recorded);
    break;
  case 18: // its proof, for another rank
    ++mine.rank;
    sayGreeting(mine);
    hearGreeting();
    say(recorded.substr(sizeof mine));
    break;
  case 19: { // the largest lengths in every field
    sayGreeting(mine);
    hearGreeting();
    say(std::string(64, '\xff') + std::string(64, '\x7f'));
    break;
  }
  default:
    break;
  }
  open.push_back(std::move(connection));
  while (open.size() > 300)
    open.pop_front();
  return true;
}
