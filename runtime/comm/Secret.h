//===- Secret.h - The shared secret of a run or a meeting -----------------===//
// The secret comes from PCRT_SECRET or PCRT_SECRET_FILE; pc-run draws one for the ranks that it starts. Both ends of a
// connection prove by HMAC-SHA256 that they know the secret (Handshake.h). Programs link only OpenSSL's SHA-256,
// statically, because its EVP functions would add 3.8 MB to each program and read a configuration file.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_SECRET_H
#define PCRT_COMM_SECRET_H

#include <array>
#include <string>
#include <string_view>

namespace pcrt {

/// A SHA-256 digest, or 32 random bytes.
using Bytes32 = std::array<char, 32>;

/// The HMAC-SHA256 (RFC 2104) of `text`.
Bytes32 hmacSha256(std::string_view key, std::string_view text);

/// Whether both are equal. The time of the comparison does not depend on where the two differ.
bool areSame(const Bytes32 &one, const Bytes32 &other);

/// Fills `bytes` from the system's random source; returns false if it has none.
bool drawBytes(Bytes32 *bytes);

/// The processes that share a secret: the ranks of one run, or the members of a meeting.
enum class SharedBy { Ranks, Members };

/// Sets `secret` to the secret of the processes that connect to `host`. The secret is empty if PCRT_SECRET is `none`,
/// or if no secret is set and `host` is a loopback address; then every caller that reaches the port is admitted.
/// Otherwise a missing or unreadable secret is an error. The function then returns false, and `error` says what to do.
bool findSecret(SharedBy who, const std::string &host, std::string *secret, std::string *error);

/// Sets PCRT_SECRET for child processes to a new random secret of one run, unless the user has set one. Returns false
/// if there is no random source. This secret cannot be used for a meeting, because other runs would have to know it.
bool handSecretToRanks();

/// Whether only this machine reaches `host`: "localhost", or an address of the loopback interface.
bool isLoopback(const std::string &host);

} // namespace pcrt

#endif // PCRT_COMM_SECRET_H
