//===- attacks.cpp - A run and a meeting under attack ---------------------===//
// usage: comm-strangers [PORT NAME]
// 1,000 connections of 20 kinds, from a caller that knows everything except the secret, must change nothing. With
// arguments, it calls the pc-meet at PORT in the name of a member until pc-meet is gone.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "FakeMember.h"
#include "Strangers.h"
#include "comm/ShmControl.h"
#include "comm/TcpControl.h"
#include "launch/Meeting.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>

using namespace pcrt;

static constexpr int calls = 1000;

namespace {
/// Ranks of one run, on threads of this process.
struct Ranks {
  explicit Ranks(int size, const std::string &secret) : planes(size) {
    setenv("PCRT_TIMEOUT_SECONDS", "60", 1);
    place.size = place.localSize = size;
    place.run = "strangers " + std::to_string(getpid());
    point = meetingPointAt("127.0.0.1", place);
    point.ports = {freePort()};
    point.secret = secret;
  }
  ~Ranks() { join(); }

  void join() {
    for (std::thread &thread : threads)
      thread.join();
    threads.clear();
  }

  /// Connects a rank, gathers with the others, and disconnects it.
  void start(int rank) {
    threads.emplace_back([this, rank, point = point] {
      Place mine = place;
      mine.rank = mine.localRank = rank;
      std::string error;
      pcrt_status status = TcpControl::connect(mine, point, &planes[rank], &error);
      Group world = worldGroup(rank, place.size);
      for (int round = 0; round < 20 && status == PCRT_OK; ++round) {
        std::vector<TcpControl::Part> parts;
        int given = 100 * round + rank;
        status = planes[rank]->gather(world, makeKey("round", world), &given, sizeof given, &parts, &error);
        for (int other = 0; other < place.size && status == PCRT_OK; ++other)
          good += !memcmp(parts[other].data.data(), &(given = 100 * round + other), sizeof given);
      }
      if (status != PCRT_OK)
        fprintf(stderr, "error: %s\n", error.c_str());
      ended += status == PCRT_OK;
      planes[rank].reset();
    });
  }

  Greeting greetingOf(int rank) const {
    Greeting greeting{Protocol::Ranks, point.run, rank, place.size, 1, point.ports[0], {}, {}};
    strcpy(greeting.name, "stranger");
    return greeting;
  }

  Place place;
  MeetingPoint point;
  std::vector<std::unique_ptr<TcpControl>> planes;
  std::vector<std::thread> threads;
  std::atomic<int> good{0}, ended{0};
};
} // namespace

/// Strangers connect while rank 0 waits for the others, and one rank connects between them.
static void testRun() {
  std::string secret = "what strangers do not know";
  int heard = 0;
  Ranks ranks(3, secret);
  ranks.start(0);
  std::string recorded = recordCall(ranks.point.ports[0], secret, ranks.greetingOf(1));
  CHECK(!recorded.empty());
  Strangers strangers(ranks.point.ports[0], ranks.greetingOf(1), recorded);
  for (int i = 0; i < calls; ++i) {
    heard += strangers.call(i % Strangers::kinds);
    if (i == calls / 2)
      ranks.start(2);
  }
  ranks.start(1);
  ranks.join();
  CHECK(heard == calls);
  CHECK(ranks.ended == 3 && ranks.good == 20 * 3 * 3);
}

/// Neither end accepts the other if it has another secret, or none.
static void testSecrets() {
  Ranks ranks(2, "one");
  ranks.start(0);
  CHECK(!recordCall(ranks.point.ports[0], "one", ranks.greetingOf(1)).empty()); // it listens
  Greeting heard;
  auto call = [&](const std::string &secret, const Greeting &mine, int fd) {
    return callHost(fd, secret, mine, monotonicSeconds() + 60, &heard);
  };
  for (const char *secret : {"other", "", "on", "one "}) {
    Socket connection = connectTo("127.0.0.1", ranks.point.ports[0], monotonicSeconds() + 60);
    CHECK(call(secret, ranks.greetingOf(1), connection.fd) == CallResult::Distrusts);
  }
  Greeting passedOn = ranks.greetingOf(1); // by a process that listens at another port
  ++passedOn.port;
  Socket connection = connectTo("127.0.0.1", ranks.point.ports[0], monotonicSeconds() + 60);
  CHECK(call("one", passedOn, connection.fd) == CallResult::NoAnswer);
  ranks.start(1);
  ranks.join();
  CHECK(ranks.ended == 2);

  for (const char *secret : {"one", "other"}) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    Socket caller(ends[0]), host(ends[1]);
    std::thread answers([&] {
      Greeting theirs, mine = ranks.greetingOf(0);
      Bytes32 proof;
      receiveBytes(host.fd, &theirs, sizeof theirs, monotonicSeconds() + 60);
      sendBytes(host.fd, &mine, sizeof mine);
      receiveBytes(host.fd, proof.data(), proof.size(), monotonicSeconds() + 60);
      Answer answer{Verdict::Welcome, proofOf(Side::Host, secret, theirs, mine, Verdict::Welcome)};
      sendBytes(host.fd, &answer, sizeof answer);
    });
    CallResult result = call("one", ranks.greetingOf(1), caller.fd);
    CHECK(result == (secret == std::string("one") ? CallResult::Welcome : CallResult::Distrusted));
    answers.join();
  }
}

/// A process other than rank 0 listens at the run's port, and echoes or stays silent. The rank then tries the next
/// port.
static void testHosts() {
  Ranks ranks(2, "secret");
  Socket echo = listenAt("127.0.0.1", 0), silent = listenAt("127.0.0.1", 0);
  ranks.point.ports.insert(ranks.point.ports.begin(), {portOf(silent), portOf(echo)});
  std::atomic<bool> over{false};
  std::thread stranger([&] {
    while (!over) {
      waitFor(echo.fd, POLLIN, monotonicSeconds() + 0.1);
      Socket peer(accept(echo.fd, nullptr, nullptr));
      char heard[1024];
      ssize_t count;
      while (peer.fd >= 0 && (count = recv(peer.fd, heard, sizeof heard, 0)) > 0)
        send(peer.fd, heard, size_t(count), MSG_NOSIGNAL);
    }
  });
  ranks.start(1);
  usleep(100000);
  ranks.point.ports.erase(ranks.point.ports.begin(), ranks.point.ports.begin() + 2);
  ranks.start(0);
  ranks.join();
  over = true;
  stranger.join();
  CHECK(ranks.ended == 2);
}

/// At the limit of open files the listener neither uses the CPU all the time nor loses a rank.
static void testFiles() {
  Ranks ranks(2, "secret");
  ranks.start(0);
  CHECK(!recordCall(ranks.point.ports[0], "secret", ranks.greetingOf(1)).empty());
  rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit few{64, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  std::vector<Socket> taken;
  for (int more; (more = dup(STDIN_FILENO)) >= 0;)
    taken.emplace_back(more);
  taken.pop_back();
  Socket waits = connectTo("127.0.0.1", ranks.point.ports[0], monotonicSeconds() + 5); // with the last descriptor
  CHECK(waits.fd >= 0);
  rusage start, end;
  getrusage(RUSAGE_SELF, &start);
  usleep(500000);
  getrusage(RUSAGE_SELF, &end);
  auto seconds = [](const rusage &usage) {
    return double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  CHECK(seconds(end) - seconds(start) < 0.3);
  taken.clear();
  setrlimit(RLIMIT_NOFILE, &before);
  ranks.start(1);
  ranks.join();
  CHECK(ranks.ended == 2);
}

/// Two members make rounds while strangers call. A rank of another program knows the secret, but its second rank never
/// connects. It must not change the rounds.
static void testMeeting() {
  constexpr int rounds = 40;
  char path[] = "/tmp/pc-strangers-XXXXXX";
  close(mkstemp(path));
  setenv("PCRT_SECRET", "of the meeting", 1);
  MeetingOptions options;
  options.port = freePort();
  options.minMembers = 2;
  options.patience = 60;
  options.log = path;
  int code = -1;
  std::thread meeting([&] { code = serveMeeting(options); });

  FakeMember alone(options.port, "of the meeting", "c", 0, 2, "another program");
  alone.send(MeetKind::Hello, alone.hello);
  std::string recorded = recordCall(options.port, "of the meeting", FakeMember::greetingOf("a"));
  Strangers strangers(options.port, FakeMember::greetingOf("a"), recorded);
  std::atomic<int> called{0}, good{0};
  auto live = [&](const char *name, float value, float mean) {
    FakeMember member(options.port, "of the meeting", name);
    member.send(MeetKind::Hello, member.hello);
    for (int round = 0; round < rounds; ++round) {
      MeetBegin begin{};
      std::string body = member.until(MeetKind::Begin);
      memcpy(&begin, body.data(), std::min(body.size(), sizeof begin));
      while (called < (round + 1) * calls / rounds)
        usleep(100);
      std::vector<float> values(FakeMember::elements, value + float(round)), means(values.size(), mean + float(round));
      member.send(MeetKind::Arrive, MeetArrive{begin.round, begin.steps, 0}, values);
      body = member.until(MeetKind::Mean);
      good +=
          begin.round == round && body.size() == 4 * means.size() && !memcmp(body.data(), means.data(), body.size());
    }
    member.leave();
    shutdown(member.connection.fd, SHUT_WR);
    member.until(MeetKind::Refuse);
  };
  std::thread a(live, "a", 1.0f, 2.0f), b(live, "b", 3.0f, 2.0f);
  int heard = 0;
  for (; called < calls; ++called)
    heard += strangers.call(called % Strangers::kinds);
  a.join();
  b.join();
  meeting.join();
  unsetenv("PCRT_SECRET");
  CHECK(heard == calls && good == 2 * rounds && code == PCRT_OK);
  std::ifstream log(path);
  int lines = 0;
  for (std::string line; std::getline(log, line); ++lines)
    CHECK(line.find("\"members\":{\"a\":{\"steps\":4,") != std::string::npos &&
          line.find(",\"b\":{\"steps\":4,") != std::string::npos && line.find("\"lost\":[]") != std::string::npos);
  CHECK(lines == rounds);
  unlink(path);
}

/// A listener that other machines reach needs a secret; so does a caller.
static void testListeners() {
  MeetingOptions options;
  for (const char *address : {"0.0.0.0", "::", "192.0.2.1", "localhost.example"}) {
    options.listen = address;
    CHECK(serveMeeting(options) == PCRT_USAGE);
  }
  options.listen = "192.0.2.1"; // an address of no machine
  setenv("PCRT_SECRET", "none", 1);
  CHECK(serveMeeting(options) == PCRT_RESOURCE);
  unsetenv("PCRT_SECRET");
}

/// Calls the meeting until it is over, and prints a line when there have been enough calls.
static int callMeeting(int port, const char *name) {
  std::string junk(193, 'x');
  Strangers strangers(port, FakeMember::greetingOf(name), junk);
  int heard = 0;
  while (strangers.call(heard % Strangers::kinds) || strangers.call(0))
    if (++heard == calls) {
      printf("%d calls\n", heard);
      fflush(stdout);
    }
  return heard < calls;
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc == 3)
    return callMeeting(atoi(argv[1]), argv[2]);
  testMeeting();
  testListeners();
  testRun();
  testSecrets();
  testHosts();
  testFiles();
  return finishChecks() ? PCRT_VERIFICATION : PCRT_OK;
}
