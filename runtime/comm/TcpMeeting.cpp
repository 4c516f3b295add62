//===- TcpMeeting.cpp - Ranks of several machines find each other ---------===//
// Rank 0 listens on the first port that is free; other ranks try all ports again and again, because any of them may
// belong to another program. A refusal by a host that knows the secret ends the attempt; all else is retried.
//===----------------------------------------------------------------------===//
#include "comm/TcpMeeting.h"
#include "comm/Admission.h"
#include "comm/MoveKey.h"
#include "comm/ShmControl.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

using namespace pcrt;

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
  // Uses ports below the range from which systems assign ports.
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
    *error =
        "the ranks are on several machines, but the address of rank 0 is unknown; set MASTER_ADDR to its machine (" +
        place.launcher + " does not set it)";
    return false;
  }
  *point = meetingPointAt(host, place);
  if (!findSecret(SharedBy::Ranks, host, &point->secret, error))
    return false;
  // torchrun's agent uses MASTER_PORT for its own store.
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

static Greeting greetingOf(const Place &place, const MeetingPoint &point, int port) {
  Greeting greeting{Protocol::Ranks, point.run, place.rank, place.size, int32_t(getpid()), port, {}, {}};
  gethostname(greeting.name, sizeof greeting.name - 1);
  return greeting;
}

/// A listener at rank 0's address if that is an address of this machine, and at all addresses otherwise: a name may
/// have another address here than on other machines.
static Socket listenFor(const MeetingPoint &point, int port) {
  sockaddr_in6 ignored;
  bool isAddress = isLoopback(point.host) || inet_pton(AF_INET, point.host.c_str(), &ignored) == 1 ||
                   inet_pton(AF_INET6, point.host.c_str(), &ignored) == 1;
  Socket listener = isAddress ? listenAt(point.host, port) : Socket();
  bool elsewhere = isAddress && errno == EADDRNOTAVAIL && !isLoopback(point.host);
  return listener.fd < 0 && (!isAddress || elsewhere) ? listenAt("", port) : std::move(listener);
}

static pcrt_status welcomeOthers(const Place &place, const MeetingPoint &point, std::vector<Peer> *peers,
                                 std::string *error) {
  Socket listener;
  for (size_t i = 0; i < point.ports.size() && listener.fd < 0; ++i)
    listener = listenFor(point, point.ports[i]);
  if (listener.fd < 0) {
    *error = "rank 0 cannot listen on any of the run's " + std::to_string(point.ports.size()) +
             " ports: " + strerror(errno) + "; set PCRT_PORT to a free port on all ranks";
    return PCRT_RESOURCE;
  }
  peers->resize(place.size);
  auto isHere = [&](int rank) { return (*peers)[rank].socket >= 0; };
  AdmissionRules rules;
  rules.name = "rank 0";
  rules.greeting = greetingOf(place, point, portOf(listener));
  rules.secret = point.secret;
  rules.expects = [&](const Greeting &other) {
    return other.size == place.size && other.rank >= 1 && other.rank < place.size;
  };
  rules.judges = [&](const Greeting &other) { return isHere(other.rank) ? Verdict::Taken : Verdict::Welcome; };
  Admission admission(std::move(listener), std::move(rules));
  double deadline = monotonicSeconds() + timeoutSeconds();
  for (int missing = place.size - 1; missing > 0;) {
    waitFor(admission.descriptor(), POLLIN, std::min(deadline, monotonicSeconds() + Admission::restSeconds));
    for (Admitted &other : admission.serve()) {
      if (isHere(other.greeting.rank))
        continue; // two processes of the same rank have connected
      configure(other.socket.fd);
      (*peers)[other.greeting.rank] = {other.socket.release(), other.greeting.process, other.greeting.name};
      --missing;
    }
    if (missing > 0 && monotonicSeconds() >= deadline) {
      *error = "rank 0: ranks that did not start within " + secondsText(timeoutSeconds()) + " s:";
      for (int rank = 1; rank < place.size; ++rank)
        *error += isHere(rank) ? "" : " " + std::to_string(rank);
      *error += "; start them with the same environment, or raise PCRT_TIMEOUT_SECONDS" + whoSaysSo(place, "; ");
      return PCRT_TIMEOUT;
    }
  }
  return PCRT_OK;
}

static pcrt_status joinRankZero(const Place &place, const MeetingPoint &point, std::vector<Peer> *peers,
                                std::string *error) {
  double deadline = monotonicSeconds() + timeoutSeconds();
  std::string lastProblem = describe(CallResult::NoAnswer);
  bool told = false;
  // A silent program on one of the ports costs little time at first; a slow network gets more time later.
  for (double patience = 0.25; monotonicSeconds() < deadline; patience = std::min(2 * patience, 2.0)) {
    for (int port : point.ports) {
      double soon = std::min(deadline, monotonicSeconds() + patience);
      Socket peer = connectTo(point.host, port, soon);
      if (peer.fd < 0) {
        lastProblem = told ? lastProblem : strerror(errno);
        continue;
      }
      Greeting host;
      CallResult result = callHost(peer.fd, point.secret, greetingOf(place, point, port), soon, &host);
      if (result == CallResult::Refused) {
        *error = rankName(place.rank) + ": rank 0 rejected this rank: another process is already rank " +
                 std::to_string(place.rank);
        return PCRT_PEER_LOST;
      }
      if (result == CallResult::Welcome) {
        configure(peer.fd);
        peers->assign(1, {peer.release(), host.process, host.name});
        return PCRT_OK;
      }
      if (result == CallResult::NoAnswer)
        continue; // the port belongs to another program
      lastProblem = describe(result);
      if (!std::exchange(told, true))
        fprintf(stderr, "warning: %s: port %d of %s: %s; trying again\n", rankName(place.rank).c_str(), port,
                point.host.c_str(), lastProblem.c_str());
    }
    usleep(20000);
  }
  *error = rankName(place.rank) + ": rank 0 did not start within " + secondsText(timeoutSeconds()) + " s at " +
           point.host + " (" + lastProblem + "); check that the address is right and reachable from this machine" +
           whoSaysSo(place, " ");
  return PCRT_TIMEOUT;
}

pcrt_status pcrt::meetOverTcp(const Place &place, const MeetingPoint &point, std::vector<Peer> *peers,
                              std::string *error) {
  return place.rank == 0 ? welcomeOthers(place, point, peers, error) : joinRankZero(place, point, peers, error);
}
