//===- Secret.h - What a run or a meeting knows and strangers do not ------===//
// The shared secret of PCRT_SECRET or PCRT_SECRET_FILE, and HMAC-SHA256, by which both ends of a connection prove that
// they know it (Handshake.h). pc-run draws one for the ranks that it starts. Programs link OpenSSL's SHA-256 alone,
// statically: its EVP functions would add 3.8 MB to each and read a configuration file.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_SECRET_H
#define PCRT_COMM_SECRET_H

#include <array>
#include <string>
#include <string_view>

namespace pcrt {

/// A SHA-256 digest, or as many random bytes.
using Bytes32 = std::array<char, 32>;

/// HMAC-SHA256 (RFC 2104) of `text`.
Bytes32 hmacSha256(std::string_view key, std::string_view text);

/// Whether both are the same; takes equally long wherever they differ.
bool areSame(const Bytes32 &one, const Bytes32 &other);

/// Fills `bytes` from the system's random source; false where it has none.
bool drawBytes(Bytes32 *bytes);

/// Who shares a secret: the ranks of one run, or the members of a meeting.
enum class SharedBy { Ranks, Members };

/// The secret of those who meet at `host`. It is empty, and everybody who reaches the port is let in, if none is set
/// and `host` is this machine alone, or if PCRT_SECRET is `none`. Otherwise a missing or unreadable secret is an error:
/// returns false and says what to do.
bool findSecret(SharedBy who, const std::string &host, std::string *secret, std::string *error);

/// Sets PCRT_SECRET for child processes to a new random secret of one run, unless the user has set one; false: there is
/// no random source. It is not taken for the secret of a meeting, which other runs have to know too.
bool handSecretToRanks();

/// Only this machine reaches `host`: "localhost", or an address of the loopback interface.
bool isLoopback(const std::string &host);

} // namespace pcrt

#endif // PCRT_COMM_SECRET_H
