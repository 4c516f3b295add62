//===- Secret.cpp - The shared secret of a run or a meeting ---------------===//
// HMAC-SHA256 as in RFC 2104, and the rules by which the environment gives a secret. A secret that pc-run has drawn
// begins with a mark, so that it is never taken for a user's.
//===----------------------------------------------------------------------===//
#include "comm/Secret.h"
#include "base/Failure.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPENSSL_SUPPRESS_DEPRECATED // see Secret.h
#include <openssl/crypto.h>
#include <openssl/sha.h>

using namespace pcrt;

/// The prefix of a secret that pc-run has drawn for one run.
static constexpr std::string_view kDrawn = "drawn-by-pc-run:";

namespace {
/// SHA-256 of text that comes in pieces.
class Sha256 {
public:
  Sha256() { SHA256_Init(&context); }
  Sha256 &add(std::string_view text) {
    SHA256_Update(&context, text.data(), text.size());
    return *this;
  }
  Bytes32 finish() {
    Bytes32 digest;
    SHA256_Final(reinterpret_cast<unsigned char *>(digest.data()), &context);
    return digest;
  }

private:
  SHA256_CTX context;
};
} // namespace

static std::string_view viewOf(const Bytes32 &bytes) { return {bytes.data(), bytes.size()}; }

Bytes32 pcrt::hmacSha256(std::string_view key, std::string_view text) {
  std::string inner(SHA256_CBLOCK, 0);
  if (key.size() > inner.size()) {
    Bytes32 hashed = Sha256().add(key).finish();
    inner.replace(0, hashed.size(), viewOf(hashed));
  } else {
    inner.replace(0, key.size(), key);
  }
  std::string outer = inner;
  for (char &c : inner)
    c ^= 0x36;
  for (char &c : outer)
    c ^= 0x5c;
  return Sha256().add(outer).add(viewOf(Sha256().add(inner).add(text).finish())).finish();
}

bool pcrt::areSame(const Bytes32 &one, const Bytes32 &other) {
  return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

bool pcrt::drawBytes(Bytes32 *bytes) { return getentropy(bytes->data(), bytes->size()) == 0; }

bool pcrt::isLoopback(const std::string &host) {
  in_addr narrow;
  in6_addr wide;
  if (inet_pton(AF_INET, host.c_str(), &narrow) == 1)
    return ntohl(narrow.s_addr) >> 24 == 127;
  if (inet_pton(AF_INET6, host.c_str(), &wide) == 1)
    return IN6_IS_ADDR_LOOPBACK(&wide) || (IN6_IS_ADDR_V4MAPPED(&wide) && wide.s6_addr[12] == 127);
  return host == "localhost";
}

/// The whole text of a small file without the newlines at its end, as $(cat FILE) gives it.
static bool readFile(const char *path, std::string *text, std::string *error) {
  std::string what = std::string("PCRT_SECRET_FILE=") + path;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  constexpr size_t most = 4096;
  text->resize(most + 1);
  bool isFile = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  ssize_t count = isFile ? read(fd, text->data(), text->size()) : -1;
  if (fd < 0 || (isFile && count < 0))
    *error = withErrno(what);
  else if (!isFile)
    *error = what + " is not a file";
  else if (size_t(count) > most)
    *error = what + " has more than " + std::to_string(most) + " bytes; use a short random text";
  if (fd >= 0)
    close(fd);
  if (!error->empty())
    return false;
  text->resize(size_t(count));
  while (!text->empty() && text->back() == '\n')
    text->pop_back();
  if (text->empty())
    *error = what + " is empty; fill it, for example with 'openssl rand -hex 32'";
  return error->empty();
}

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : nullptr;
}

bool pcrt::findSecret(SharedBy who, const std::string &host, std::string *secret, std::string *error) {
  secret->clear();
  error->clear();
  const char *text = variable("PCRT_SECRET"), *file = variable("PCRT_SECRET_FILE");
  if (who == SharedBy::Members && text && std::string_view(text).starts_with(kDrawn))
    text = nullptr;
  if (text && file) {
    *error = "PCRT_SECRET and PCRT_SECRET_FILE are both set; unset one";
    return false;
  }
  if (file)
    return readFile(file, secret, error);
  if (text) {
    if (std::string_view(text) != "none")
      *secret = text;
    return true;
  }
  if (isLoopback(host))
    return true;
  *error = "other machines can reach " + host + ", but there is no secret to distinguish " +
           (who == SharedBy::Ranks ? "the ranks of this run" : "members") +
           " from strangers; give all of them the same PCRT_SECRET (for example $(openssl rand -hex 32)) or "
           "PCRT_SECRET_FILE, or set PCRT_SECRET=none if only you can reach their network";
  return false;
}

bool pcrt::handSecretToRanks() {
  const char *text = variable("PCRT_SECRET");
  if (variable("PCRT_SECRET_FILE") || (text && !std::string_view(text).starts_with(kDrawn)))
    return true;
  Bytes32 bytes;
  if (!drawBytes(&bytes))
    return false;
  std::string secret(kDrawn);
  for (char byte : bytes)
    for (int nibble : {uint8_t(byte) >> 4, byte & 15})
      secret += "0123456789abcdef"[nibble];
  setenv("PCRT_SECRET", secret.c_str(), 1);
  return true;
}
