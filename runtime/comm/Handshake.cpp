//===- Handshake.cpp - Both ends of a connection prove that they know a secret -===//
// This file has the caller's half and the proof; Admission.cpp has the host's half. The verdict is part of the host's
// proof, so that a stranger cannot change it on the way.
//===----------------------------------------------------------------------===//
#include "comm/Handshake.h"
#include "comm/Sockets.h"

#include <cstring>

using namespace pcrt;

static_assert(sizeof(Greeting) == 128 && sizeof(Answer) == 33, "these are sent as they are");

Bytes32 pcrt::proofOf(Side side, const std::string &secret, const Greeting &caller, const Greeting &host,
                      Verdict verdict) {
  char text[2 + 2 * sizeof(Greeting)];
  text[0] = char(side);
  text[1] = char(verdict);
  memcpy(text + 2, &caller, sizeof caller);
  memcpy(text + 2 + sizeof caller, &host, sizeof host);
  return hmacSha256(secret, {text, sizeof text});
}

CallResult pcrt::callHost(int fd, const std::string &secret, Greeting mine, double deadline, Greeting *host) {
  if (!drawBytes(&mine.random) || !sendBytes(fd, &mine, sizeof mine) ||
      !receiveBytes(fd, host, sizeof *host, deadline) || host->protocol != mine.protocol || host->run != mine.run ||
      host->random == mine.random) // an echo
    return CallResult::NoAnswer;
  host->name[sizeof host->name - 1] = 0;
  Bytes32 proof = proofOf(Side::Caller, secret, mine, *host, Verdict::Welcome);
  Answer answer;
  if (!sendBytes(fd, proof.data(), proof.size()) || !receiveBytes(fd, &answer, sizeof answer, deadline))
    return CallResult::Distrusts;
  if (!areSame(answer.proof, proofOf(Side::Host, secret, mine, *host, answer.verdict)))
    return CallResult::Distrusted;
  if (answer.verdict != Verdict::Welcome)
    return CallResult::Refused;
  constexpr char isIn = 1;
  return sendBytes(fd, &isIn, 1) ? CallResult::Welcome : CallResult::NoAnswer;
}

const char *pcrt::describe(CallResult result) {
  switch (result) {
  case CallResult::Welcome:
    return "it accepted this process";
  case CallResult::Refused:
    return "it rejected this process";
  case CallResult::NoAnswer:
    return "it did not answer";
  case CallResult::Distrusts:
    return "it closed the connection; is PCRT_SECRET the same on both sides?";
  case CallResult::Distrusted:
    return "its PCRT_SECRET does not match; is PCRT_SECRET the same on both sides?";
  }
  return "";
}
