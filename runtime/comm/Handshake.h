//===- Handshake.h - Both ends of a connection prove that they know a secret -===//
//   caller: Greeting
//   host:   Greeting
//   caller: proof
//   host:   Answer
//   caller: one byte, since it may have stopped waiting
// A proof is an HMAC-SHA256, keyed by the secret. It covers the side that proves, and both greetings with their random
// bytes. A proof is therefore useless on another connection, at the other end, and for another rank, run or port. The
// host proves only after the caller has. All messages have a fixed size. Nothing is encrypted, and messages after the
// handshake are not authenticated.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_HANDSHAKE_H
#define PCRT_COMM_HANDSHAKE_H

#include "comm/Secret.h"

#include <cstdint>
#include <string>

namespace pcrt {

/// The protocol of a connection, and its version.
enum class Protocol : uint64_t {
  Ranks = 0x70637274'74637003,   ///< "pcrttcp": the ranks of a run (TcpControl.h).
  Members = 0x70637274'6d656502, ///< "pcrtmee": a member's rank and pc-meet (MeetMessages.h).
};

/// The identity that one end of a connection claims. Little-endian, without padding.
struct Greeting {
  Protocol protocol = Protocol::Ranks;
  uint64_t run = 0; ///< Hash of the run's name.
  int32_t rank = 0, size = 0;
  int32_t process = 0;
  int32_t port = 0; ///< The host's port, so that a proof is useless at another one.
  Bytes32 random{};
  char name[64] = {}; ///< The name of its machine, or of the member.
};

/// The host's decision about a caller that knows the secret.
enum class Verdict : uint8_t {
  Welcome,
  Taken, ///< Another process is this rank.
};

/// The last message of the host.
struct Answer {
  Verdict verdict;
  Bytes32 proof;
};

enum class Side : uint8_t { Caller, Host };

/// Returns the proof of `side` that it knows `secret`. `verdict` is that of the host; in a caller's proof it is
/// Welcome.
Bytes32 proofOf(Side side, const std::string &secret, const Greeting &caller, const Greeting &host, Verdict verdict);

/// How a call ended.
enum class CallResult {
  Welcome,
  Refused,   ///< A host that knows the secret has refused the caller (Taken).
  NoAnswer,  ///< No process answers, or another program answers.
  Distrusts, ///< The host has closed the connection after the proof: it may have another secret.
  Distrusted ///< The host itself has given no proof, or a wrong one.
};

/// Does the caller's part of a handshake, on a connection that blocks. Draws the random bytes of `mine` and sets `host`
/// to the other end's greeting. `deadline` is in seconds of monotonicSeconds().
CallResult callHost(int fd, const std::string &secret, Greeting mine, double deadline, Greeting *host);

/// "it does not accept this rank's secret (PCRT_SECRET)", for messages.
const char *describe(CallResult result);

} // namespace pcrt

#endif // PCRT_COMM_HANDSHAKE_H
