//===- Rendezvous.cpp - Ranks find their shared file without pc-run -------===//
// The descriptor travels as SCM_RIGHTS (unix(7)). Any process on the machine can bind or call an abstract name, so both
// ends check the other one's user (SO_PEERCRED).
//===----------------------------------------------------------------------===//
#include "comm/Rendezvous.h"
#include "comm/ShmControl.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

using namespace pcrt;

namespace {

/// A rank's first message at the run's socket.
struct Hello {
  uint64_t magic;
  int32_t rank, size;
};

/// A file descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0)
      close(fd);
  }
};

} // namespace

/// The address of the run's socket, and its length. A leading zero byte means the abstract namespace.
static socklen_t makeAddress(const Place &place, sockaddr_un *address) {
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  std::string name = "pcrt/" + std::to_string(getuid()) + "/" + place.launcher + "/" + place.run;
  // A long name is cut and made unique again by its hash.
  uint64_t hash = 14695981039346656037u;
  for (char c : name)
    hash = (hash ^ uint8_t(c)) * 1099511628211u;
  name = name.substr(0, 80) + "/" + std::to_string(hash);
  name.resize(std::min(name.size(), sizeof address->sun_path - 1));
  memcpy(address->sun_path + 1, name.data(), name.size());
  return offsetof(sockaddr_un, sun_path) + 1 + name.size();
}

/// Waits until `fd` can be read; false once `deadline` has passed.
static bool readable(int fd, double deadline) {
  for (;;) {
    double left = deadline - monotonicSeconds();
    pollfd entry{fd, POLLIN, 0};
    int ready = poll(&entry, 1, left > 0 ? int(std::min(left, 1e6) * 1000) + 1 : 0);
    if (ready > 0)
      return true;
    if (left <= 0 || (ready < 0 && errno != EINTR))
      return false;
  }
}

/// Returns true if the process at the other end belongs to this user.
static bool isOwnUser(int fd) {
  ucred owner{};
  socklen_t length = sizeof owner;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &length) == 0 && owner.uid == getuid();
}

/// Sends the reply: the refusal, or the descriptor if `refusal` is empty.
static bool sendReply(int socket, int fd, const std::string &refusal) {
  char zero = 0;
  iovec data{refusal.empty() ? &zero : const_cast<char *>(refusal.data()), refusal.empty() ? 1 : refusal.size()};
  alignas(cmsghdr) char buffer[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (refusal.empty()) {
    message.msg_control = buffer;
    message.msg_controllen = sizeof buffer;
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) > 0;
}

/// Returns the descriptor in the reply, or -1 and the refusal.
static int receiveReply(int socket, std::string *refusal) {
  char text[512];
  iovec data{text, sizeof text};
  alignas(cmsghdr) char buffer[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = buffer;
  message.msg_controllen = sizeof buffer;
  ssize_t length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  cmsghdr *header = length > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header && header->cmsg_type == SCM_RIGHTS) {
    int fd;
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
  }
  *refusal = length > 0 ? std::string(text, length) : "rank 0 closed the connection";
  return -1;
}

static pcrt_status welcomeOthers(const Place &place, int *fd, std::string *error) {
  sockaddr_un address;
  socklen_t length = makeAddress(place, &address);
  Descriptor listener{socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  if (listener.fd < 0 || bind(listener.fd, reinterpret_cast<sockaddr *>(&address), length) != 0 ||
      listen(listener.fd, kMaxRanks) != 0) {
    *error = "rank 0 cannot open the meeting point of run '" + place.run + "': " + strerror(errno) +
             (errno == EADDRINUSE ? "; another run on this machine uses the same MASTER_ADDR and MASTER_PORT" : "");
    return PCRT_RESOURCE;
  }
  Descriptor shared{createSharedFile(place.size)};
  if (shared.fd < 0) {
    *error = std::string("rank 0 cannot create the shared memory of the run: ") + strerror(errno);
    return PCRT_RESOURCE;
  }
  std::string here(place.size, 0); // a flag per rank
  here[0] = 1;
  double deadline = monotonicSeconds() + timeoutSeconds();
  for (int missing = place.size - 1; missing > 0;) {
    if (!readable(listener.fd, deadline)) {
      *error = "rank 0: ranks that did not start within " + secondsText(timeoutSeconds()) + " s" + ":";
      for (int rank = 0; rank < place.size; ++rank)
        *error += here[rank] ? "" : " " + std::to_string(rank);
      *error += "; start them with the same environment, or raise PCRT_TIMEOUT_SECONDS" + whoSaysSo(place, "; ");
      return PCRT_TIMEOUT;
    }
    Descriptor peer{accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC)};
    Hello hello{};
    if (peer.fd < 0 || !isOwnUser(peer.fd) || !readable(peer.fd, std::min(deadline, monotonicSeconds() + 5)) ||
        recv(peer.fd, &hello, sizeof hello, 0) != ssize_t(sizeof hello))
      continue; // the caller is not a rank of this program
    std::string refusal;
    if (hello.magic != kControlMagic)
      refusal = "rank 0 runs a different version of the runtime";
    else if (hello.size != place.size)
      refusal = "rank 0 belongs to a run of " + std::to_string(place.size) + " ranks";
    else if (hello.rank < 0 || hello.rank >= place.size || here[hello.rank])
      refusal = "another process is already rank " + std::to_string(hello.rank);
    if (sendReply(peer.fd, shared.fd, refusal) && refusal.empty()) {
      here[hello.rank] = 1;
      --missing;
    }
  }
  std::swap(*fd, shared.fd);
  return PCRT_OK;
}

static pcrt_status joinRankZero(const Place &place, int *fd, std::string *error) {
  sockaddr_un address;
  socklen_t length = makeAddress(place, &address);
  std::string me = "rank " + std::to_string(place.rank) + ": ";
  double deadline = monotonicSeconds() + timeoutSeconds();
  Descriptor peer;
  for (;;) {
    peer.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (peer.fd >= 0 && connect(peer.fd, reinterpret_cast<sockaddr *>(&address), length) == 0 && isOwnUser(peer.fd))
      break;
    if (monotonicSeconds() > deadline) {
      *error = me + "rank 0 did not start within " + secondsText(timeoutSeconds()) + " s" + " (run '" + place.run +
               "'); all ranks of the shm transport must be on one machine" + whoSaysSo(place, "; ");
      return PCRT_TIMEOUT;
    }
    if (peer.fd >= 0)
      close(peer.fd);
    usleep(10000);
  }
  Hello hello{kControlMagic, place.rank, place.size};
  std::string refusal;
  if (send(peer.fd, &hello, sizeof hello, MSG_NOSIGNAL) != ssize_t(sizeof hello) || !readable(peer.fd, deadline))
    refusal = "rank 0 did not answer";
  else
    *fd = receiveReply(peer.fd, &refusal);
  if (*fd >= 0)
    return PCRT_OK;
  *error = me + "rank 0 rejected this rank: " + refusal;
  return PCRT_PEER_LOST;
}

pcrt_status pcrt::meet(const Place &place, int *fd, std::string *error) {
  *fd = -1;
  return place.rank == 0 ? welcomeOthers(place, fd, error) : joinRankZero(place, fd, error);
}
