//===- TcpMeeting.cpp - how ranks of several machines find each other -----===//
#include "comm/TcpMeeting.h"
#include "comm/MoveKey.h"
#include "comm/ShmControl.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

using namespace pcrt;

namespace {

constexpr uint64_t kHelloMagic = 0x70637274'74637002; // "pcrttcp", version of the protocol

/// The first message of both sides. A rank that rank 0 welcomes then confirms, since it may have stopped waiting.
struct Hello {
  uint64_t magic, run;
  int32_t rank, size, process;
  int32_t verdict; ///< Of rank 0: 0 welcome, else a refusal.
  char host[64];
};

enum Verdict : int32_t { Welcome, OtherSize, RankTaken };

/// A socket that closes itself.
struct Socket {
  int fd = -1;
  Socket() = default;
  explicit Socket(int fd) : fd(fd) {}
  Socket(const Socket &) = delete;
  ~Socket() {
    if (fd >= 0)
      close(fd);
  }
  int release() { return std::exchange(fd, -1); }
};

} // namespace

static std::string variable(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

static uint64_t hashText(const std::string &text) {
  uint64_t hash = 14695981039346656037u;
  for (char c : text)
    hash = (hash ^ uint8_t(c)) * 1099511628211u;
  return hash;
}

std::string pcrt::firstHost(const std::string &list) {
  size_t end = list.find_first_of("[,");
  std::string host = list.substr(0, end);
  if (end == std::string::npos || list[end] == ',')
    return host;
  size_t number = list.find_first_of(",-]", end + 1);
  return host + list.substr(end + 1, number == std::string::npos ? number : number - end - 1);
}

MeetingPoint pcrt::meetingPointAt(const std::string &host, const Place &place) {
  MeetingPoint point;
  point.host = host;
  point.run = hashText(place.launcher + "/" + place.run + "/" + std::to_string(place.size));
  // Below the range from which systems take ports by themselves.
  for (uint64_t i = 0; i < 8; ++i)
    point.ports.push_back(20000 + int((point.run / 65537 + i * 1543) % 12000));
  return point;
}

bool pcrt::findMeetingPoint(const Place &place, MeetingPoint *point, std::string *error) {
  bool oneMachine = place.localSize >= place.size;
  std::string host = oneMachine ? "127.0.0.1" : variable("MASTER_ADDR");
  if (host.empty() && place.launcher == "srun")
    for (const char *name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})
      if (host.empty())
        host = firstHost(variable(name));
  if (host.empty()) {
    *error = "the ranks are on several machines, and nothing says where rank 0 is; set MASTER_ADDR to its machine (" +
             place.launcher + " does not)";
    return false;
  }
  *point = meetingPointAt(host, place);
  // torchrun's agent keeps MASTER_PORT for its own store.
  bool own = !variable("PCRT_PORT").empty();
  if (!own && (variable("MASTER_PORT").empty() || variable("TORCHELASTIC_USE_AGENT_STORE") == "True"))
    return true;
  const char *name = own ? "PCRT_PORT" : "MASTER_PORT";
  std::string port = variable(name);
  int number = atoi(port.c_str());
  if (number < 1 || number > 65535) {
    *error = std::string(name) + "='" + port + "' is not a port";
    return false;
  }
  if (own)
    point->ports.clear();
  point->ports.insert(point->ports.begin(), number);
  return true;
}

void pcrt::configureSocket(int fd) {
  auto set = [&](int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // A machine that vanished does not close its connections: the system asks it once a second.
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 5);
}

static void configure(int fd) {
  configureSocket(fd);
  int most = 7000; // a rank always reads
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof most);
}

static bool waitFor(int fd, short events, double deadline) {
  for (;;) {
    double left = deadline - monotonicSeconds();
    pollfd entry{fd, events, 0};
    int ready = poll(&entry, 1, left > 0 ? int(std::min(left, 1e6) * 1000) + 1 : 0);
    if (ready > 0)
      return true;
    if (left <= 0 || (ready < 0 && errno != EINTR))
      return false;
  }
}

static bool sendHello(int fd, const Hello &hello) {
  return send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == ssize_t(sizeof hello);
}

static bool receiveBytes(int fd, void *to, size_t bytes, double deadline) {
  for (size_t got = 0; got < bytes;) {
    if (!waitFor(fd, POLLIN, deadline))
      return false;
    ssize_t count = recv(fd, static_cast<char *>(to) + got, bytes - got, 0);
    if (count <= 0)
      return false;
    got += count;
  }
  return true;
}

static bool receiveHello(int fd, Hello *hello, double deadline) {
  if (!receiveBytes(fd, hello, sizeof *hello, deadline))
    return false;
  hello->host[sizeof hello->host - 1] = 0;
  return hello->magic == kHelloMagic;
}

static Hello makeHello(const Place &place, const MeetingPoint &point) {
  Hello hello{kHelloMagic, point.run, place.rank, place.size, int32_t(getpid()), Welcome, {}};
  gethostname(hello.host, sizeof hello.host - 1);
  return hello;
}

/// A listening socket on `port`: of this machine alone, or of all its addresses.
static int listenAt(int port, bool oneMachine) {
  Socket listener(socket(oneMachine ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.fd < 0 && !oneMachine) // a system without IPv6
    listener.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener.fd < 0)
    return -1;
  int yes = 1, no = 0;
  setsockopt(listener.fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  setsockopt(listener.fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  int family = AF_INET;
  socklen_t length = sizeof family;
  getsockopt(listener.fd, SOL_SOCKET, SO_DOMAIN, &family, &length);
  sockaddr_in6 wide{};
  wide.sin6_family = AF_INET6;
  wide.sin6_port = htons(uint16_t(port));
  sockaddr_in narrow{};
  narrow.sin_family = AF_INET;
  narrow.sin_port = htons(uint16_t(port));
  narrow.sin_addr.s_addr = htonl(oneMachine ? INADDR_LOOPBACK : INADDR_ANY);
  auto *address = family == AF_INET6 ? reinterpret_cast<sockaddr *>(&wide) : reinterpret_cast<sockaddr *>(&narrow);
  if (bind(listener.fd, address, family == AF_INET6 ? sizeof wide : sizeof narrow) != 0 ||
      listen(listener.fd, kMaxRanks) != 0)
    return -1;
  return listener.release();
}

static pcrt_status welcomeOthers(const Place &place, const MeetingPoint &point, std::vector<Peer> *peers,
                                 std::string *error) {
  Socket listener;
  for (size_t i = 0; i < point.ports.size() && listener.fd < 0; ++i)
    listener.fd = listenAt(point.ports[i], place.localSize >= place.size);
  if (listener.fd < 0) {
    *error = "rank 0 cannot listen on any of the run's " + std::to_string(point.ports.size()) +
             " ports: " + strerror(errno) + "; set PCRT_PORT to a free one on all ranks";
    return PCRT_RESOURCE;
  }
  peers->resize(place.size);
  double deadline = monotonicSeconds() + timeoutSeconds();
  for (int missing = place.size - 1; missing > 0;) {
    if (!waitFor(listener.fd, POLLIN, deadline)) {
      *error = "rank 0: ranks that did not start within " + secondsText(timeoutSeconds()) + " s:";
      for (int rank = 1; rank < place.size; ++rank)
        *error += (*peers)[rank].socket < 0 ? " " + std::to_string(rank) : "";
      *error += "; start them with the same environment, or set PCRT_TIMEOUT_SECONDS";
      return PCRT_TIMEOUT;
    }
    Socket peer(accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello{}, reply = makeHello(place, point);
    if (peer.fd < 0 || !receiveHello(peer.fd, &hello, std::min(deadline, monotonicSeconds() + 2)) ||
        hello.run != point.run || hello.rank < 1 || hello.rank >= place.size)
      continue; // not a rank of this run
    if (hello.size != place.size)
      reply.verdict = OtherSize;
    else if ((*peers)[hello.rank].socket >= 0)
      reply.verdict = RankTaken;
    char isIn;
    if (!sendHello(peer.fd, reply) || reply.verdict != Welcome || !receiveBytes(peer.fd, &isIn, 1, deadline))
      continue;
    configure(peer.fd);
    (*peers)[hello.rank] = {peer.release(), hello.process, hello.host};
    --missing;
  }
  return PCRT_OK;
}

/// A connection to `host`, or -1 with errno set.
static int connectTo(const std::string &host, int port, double deadline) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    errno = EHOSTUNREACH;
    return -1;
  }
  int connected = -1;
  for (addrinfo *at = found; at && connected < 0; at = at->ai_next) {
    Socket peer(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (peer.fd < 0)
      continue;
    int problem = connect(peer.fd, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (problem == EINPROGRESS) {
      socklen_t length = sizeof problem;
      if (!waitFor(peer.fd, POLLOUT, deadline))
        problem = ETIMEDOUT;
      else
        getsockopt(peer.fd, SOL_SOCKET, SO_ERROR, &problem, &length);
    }
    errno = problem;
    if (problem == 0) {
      fcntl(peer.fd, F_SETFL, fcntl(peer.fd, F_GETFL) & ~O_NONBLOCK);
      connected = peer.release();
    }
  }
  freeaddrinfo(found);
  return connected;
}

static pcrt_status joinRankZero(const Place &place, const MeetingPoint &point, std::vector<Peer> *peers,
                                std::string *error) {
  double deadline = monotonicSeconds() + timeoutSeconds();
  std::string lastProblem = "no answer";
  while (monotonicSeconds() < deadline) {
    for (int port : point.ports) {
      double soon = std::min(deadline, monotonicSeconds() + 2);
      Socket peer(connectTo(point.host, port, soon));
      Hello reply{};
      if (peer.fd < 0) {
        lastProblem = strerror(errno);
        continue;
      }
      if (!sendHello(peer.fd, makeHello(place, point)) || !receiveHello(peer.fd, &reply, soon) ||
          reply.run != point.run || reply.rank != 0)
        continue; // somebody else's port, or an echo of this rank
      if (reply.verdict != Welcome) {
        *error = rankName(place.rank) + ": rank 0 refused it: " +
                 (reply.verdict == OtherSize ? "it is in a run of " + std::to_string(reply.size) + " ranks"
                                             : "there is already a rank " + std::to_string(place.rank));
        return PCRT_PEER_LOST;
      }
      constexpr char isIn = 1;
      if (send(peer.fd, &isIn, 1, MSG_NOSIGNAL) != 1)
        continue;
      configure(peer.fd);
      peers->assign(1, {peer.release(), reply.process, reply.host});
      return PCRT_OK;
    }
    usleep(20000);
  }
  *error = rankName(place.rank) + ": rank 0 did not start within " + secondsText(timeoutSeconds()) + " s at " +
           point.host + " (" + lastProblem + "); is the address right and open between the machines?";
  return PCRT_TIMEOUT;
}

pcrt_status pcrt::meetOverTcp(const Place &place, const MeetingPoint &point, std::vector<Peer> *peers,
                              std::string *error) {
  return place.rank == 0 ? welcomeOthers(place, point, peers, error) : joinRankZero(place, point, peers, error);
}
