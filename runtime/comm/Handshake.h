//===- Handshake.h - Both ends of a connection prove that they know a secret -===//
//   caller: Greeting
//   host:   Greeting
//   caller: proof
//   host:   Answer
//   caller: one byte, since it may have stopped waiting
//
// A proof is the HMAC-SHA256, keyed by the secret, over who proves and both greetings with their random bytes. So a
// recorded proof is of no use on another connection, a reflected one of none at the other end, and one for another
// rank, run or port of none for this one. The host proves only after the caller has. All messages have a fixed size.
// Nothing is encrypted, and what follows the handshake is not authenticated.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_HANDSHAKE_H
#define PCRT_COMM_HANDSHAKE_H

#include "comm/Secret.h"

#include <cstdint>
#include <string>

namespace pcrt {

/// What is spoken on a connection, and its version.
enum class Protocol : uint64_t {
  Ranks = 0x70637274'74637003,   ///< "pcrttcp": the ranks of a run (TcpControl.h).
  Members = 0x70637274'6d656502, ///< "pcrtmee": a member's rank and pc-meet (MeetMessages.h).
};

/// Who one end of a connection is. Little-endian, without padding.
struct Greeting {
  Protocol protocol = Protocol::Ranks;
  uint64_t run = 0; ///< Hash of the run's name.
  int32_t rank = 0, size = 0;
  int32_t process = 0;
  int32_t port = 0; ///< At which the host listens, so that nobody passes a call on to another port.
  Bytes32 random{};
  char name[64] = {}; ///< Of its machine, or of the member.
};

enum class Verdict : uint8_t {
  Welcome,
  Taken, ///< Somebody else is this rank.
};

struct Answer {
  Verdict verdict;
  Bytes32 proof;
};

enum class Side : uint8_t { Caller, Host };

/// What `side` has to send to prove that it knows `secret`. `verdict` is the host's; Welcome for the caller.
Bytes32 proofOf(Side side, const std::string &secret, const Greeting &caller, const Greeting &host, Verdict verdict);

/// How a call ended.
enum class CallResult {
  Welcome,
  Refused,   ///< By a host that knows the secret: Taken.
  NoAnswer,  ///< Nobody answers, or somebody else does.
  Distrusts, ///< The host has hung up after hearing the proof: it may have another secret.
  Distrusted ///< The host itself has given no proof, or a wrong one.
};

/// The caller's part, on a connection that blocks. Draws the random bytes of `mine`; `host` becomes the other end's
/// greeting.
CallResult callHost(int fd, const std::string &secret, Greeting mine, double deadline, Greeting *host);

/// "it does not accept this rank's secret (PCRT_SECRET)", for messages.
const char *describe(CallResult result);

} // namespace pcrt

#endif // PCRT_COMM_HANDSHAKE_H
