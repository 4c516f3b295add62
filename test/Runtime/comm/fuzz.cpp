//===- fuzz.cpp - Meaningless messages to both listeners ------------------===//
// usage: comm-fuzz MESSAGES [SEED]
// Sends handshakes and messages with changed bytes to rank 0, to a rank, and to a meeting of open local SGD, from
// callers that know the secret and from others. A child process handles a few hundred sessions. It may end like a run
// that has lost a rank; any other end, and every finding of a sanitizer, is an error.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "FakeMember.h"
#include "Strangers.h"
#include "comm/Admission.h"
#include "comm/TcpControl.h"
#include "comm/TcpMessages.h"
#include "launch/Meeting.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>

using namespace pcrt;

static const std::string secret = "known to some";

namespace {

/// The start of every control message (TcpControl.h).
struct Header {
  uint32_t magic = 0x70637443, kind;
  int32_t from, group;
  uint64_t sequence;
  int64_t bytes;
};

/// Sends handshakes and messages with changed bytes to the listeners.
class Fuzzer {
public:
  Fuzzer(uint32_t seed, int meetingPort) : draw(seed), meetingPort(meetingPort) {}

  /// Returns the number of messages that it sent.
  int session() {
    sent = 0;
    switch (below(5)) {
    case 0:
      toRankZero();
      break;
    case 1:
      toRank();
      break;
    case 2:
      toMeeting();
      break;
    case 3:
      handshakes(meetingPort, FakeMember::greetingOf("a"));
      break;
    default:
      toStranger();
      break;
    }
    return sent;
  }

private:
  uint32_t below(uint32_t most) { return draw() % most; }
  template <typename T> static std::string bytesOf(const T &value) {
    return std::string(reinterpret_cast<const char *>(&value), sizeof value);
  }

  /// Changes some bytes, a number or the length. About one message in four stays as it is.
  std::string changed(std::string text) {
    static const int64_t extremes[] = {0,       -1,        1,         2,         63,        64,
                                       1 << 20, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t(1) << 40};
    for (uint32_t change = below(4); change > 0 && !text.empty(); --change) {
      int64_t extreme = extremes[below(std::size(extremes))];
      size_t width = below(2) ? 4 : 8, words = text.size() / width;
      switch (below(6)) {
      case 0:
        text[below(uint32_t(text.size()))] = char(draw());
        break;
      case 1:
        text[below(uint32_t(std::min<size_t>(text.size(), 32)))] ^= char(1 << below(8));
        break;
      case 2:
      case 3:
        if (words)
          memcpy(text.data() + width * below(uint32_t(std::min<size_t>(words, below(2) ? 8 : words))), &extreme, width);
        break;
      case 4:
        text.resize(below(uint32_t(text.size() + 1)));
        break;
      default:
        text.append(below(64), char(draw()));
        break;
      }
    }
    return text;
  }

  bool say(int fd, const std::string &text) {
    ++sent;
    return sendBytes(fd, text.data(), text.size());
  }

  std::string controlMessage(int from) {
    static constexpr int size = 3;
    Header header{.kind = below(8), .from = from, .group = int(below(size)), .sequence = 1 + below(3), .bytes = 0};
    std::string body;
    MoveKey key = makeKey("barrier", worldGroup(from, size));
    switch (header.kind) {
    case 0: // Gather
      header.group = kWorldGroup;
      body = bytesOf(GatherHead{key, size, from});
      for (int32_t rank = 0; rank < size; ++rank)
        body += bytesOf(rank);
      break;
    case 1: // Gathered
      header.group = kWorldGroup;
      for (int part = 0; part < size; ++part)
        body += bytesOf(PartHead{key, 4}) + "data";
      break;
    case 2: // Failed
      body = bytesOf(FailedHead{from, PCRT_BAD_DATA}) + "a bad token";
      break;
    case 5: { // Answer
      Progress progress{};
      strcpy(progress.doing, "in barrier");
      body = bytesOf(progress);
      break;
    }
    case 6: // Letter
      body.assign(16, 'x');
      break;
    default:
      break;
    }
    header.bytes = int64_t(body.size());
    return bytesOf(header) + body;
  }

  /// Takes part in the run as a rank that receives such messages from others.
  static void takePart(TcpControl &plane) {
    std::string error;
    std::vector<TcpControl::Part> parts;
    Group world = worldGroup(plane.rank(), plane.size());
    Flow from{plane.rank() ? 0 : 1, 0, false, 16, 1, 1, "forward"};
    from.partner = 0, from.count = 1;
    char letter[16];
    plane.openFlows(1);
    plane.askProgress(0.001);
    if (plane.gather(world, makeKey("barrier", world), nullptr, 0, &parts, &error) == PCRT_OK)
      plane.takeLetter(from, 0, letter, &error);
  }

  void speak(int fd, int from) {
    for (uint32_t count = 1 + below(12); count > 0 && say(fd, changed(controlMessage(from))); --count)
      ;
    shutdown(fd, SHUT_WR);
  }

  static Place placeOf(int rank) {
    Place place;
    place.rank = rank;
    place.size = place.localSize = 3;
    place.run = "fuzz";
    return place;
  }

  void toRankZero() {
    Place place = placeOf(0);
    MeetingPoint point = meetingPointAt("127.0.0.1", place);
    point.ports = {freePort()};
    point.secret = secret;
    std::thread rank([&] {
      std::unique_ptr<TcpControl> plane;
      std::string error;
      if (TcpControl::connect(place, point, &plane, &error) == PCRT_OK)
        takePart(*plane);
    });
    Socket others[2];
    for (int i = 0; i < 2; ++i)
      others[i] =
          call(point.ports[0], Greeting{Protocol::Ranks, point.run, 1 + i, 3, 1, point.ports[0], {}, "fuzz"}, false);
    for (int i = 0; i < 2; ++i)
      speak(others[i].fd, 1 + i);
    rank.join();
  }

  void toRank() {
    Place place = placeOf(1);
    MeetingPoint point = meetingPointAt("127.0.0.1", place);
    AdmissionRules rules;
    Socket listener = listenAt("127.0.0.1", 0);
    point.ports = {portOf(listener)};
    point.secret = rules.secret = secret;
    rules.greeting = {Protocol::Ranks, point.run, 0, 3, 1, point.ports[0], {}, "fuzz"};
    rules.expects = [](const Greeting &) { return true; };
    rules.judges = [](const Greeting &) { return Verdict::Welcome; };
    Admission admission(std::move(listener), std::move(rules));
    std::thread rank([&] {
      std::unique_ptr<TcpControl> plane;
      std::string error;
      if (TcpControl::connect(place, point, &plane, &error) == PCRT_OK)
        takePart(*plane);
    });
    std::vector<Admitted> admitted;
    while (admitted.empty()) {
      waitFor(admission.descriptor(), POLLIN, monotonicSeconds() + 0.1);
      admitted = admission.serve();
    }
    speak(admitted[0].socket.fd, 0);
    rank.join();
  }

  /// Connects as a process that knows the secret. Returns none if `over` becomes true first.
  static Socket call(int port, const Greeting &mine, const std::atomic<bool> &over) {
    for (double end = monotonicSeconds() + 60; monotonicSeconds() < end && !over; usleep(200)) {
      Greeting host;
      Socket connection = connectTo("127.0.0.1", port, end);
      if (connection.fd >= 0 && callHost(connection.fd, secret, mine, end, &host) == CallResult::Welcome)
        return connection;
    }
    return Socket();
  }

  /// Sends the messages of two members before, during and after rounds.
  void toMeeting() {
    std::vector<std::unique_ptr<FakeMember>> members;
    bool begins = true;
    auto message = [](MeetKind kind, const std::string &fields) {
      return bytesOf(MeetHead{kind, 0, fields.size()}) + fields;
    };
    for (const char *name : {"a", "b"}) {
      FakeMember &fake = *members.emplace_back(std::make_unique<FakeMember>(meetingPort, secret, name));
      fake.hello.samples = below(2) ? int64_t(1) << 51 : 0;
      std::string hello = message(MeetKind::Hello, bytesOf(fake.hello));
      std::string said = below(4) ? hello : changed(hello);
      begins &= said == hello;
      say(fake.connection.fd, said);
    }
    auto hear = [&](double seconds) {
      char bytes[4096];
      for (auto &fake : members)
        if (waitFor(fake->connection.fd, POLLIN, monotonicSeconds() + seconds))
          recv(fake->connection.fd, bytes, sizeof bytes, MSG_DONTWAIT);
    };
    if (begins && below(8))
      hear(1); // the message that the round begins
    int64_t round = 0;
    bool arrived[2] = {};
    for (uint32_t count = below(12); count > 0; --count) {
      uint32_t member = count % 2, kind = below(4) ? 0 : below(4);
      std::string values(4 * FakeMember::elements, char(draw()));
      std::string texts[] = {message(MeetKind::Arrive, bytesOf(MeetArrive{round, 1 + below(4), 0}) + values),
                             message(MeetKind::State, bytesOf(MeetState{round, 0}) + values + values),
                             message(MeetKind::Hello, bytesOf(members[member]->hello)), message(MeetKind::Leave, "")};
      if (!say(members[member]->connection.fd, below(4) ? texts[kind] : changed(texts[kind])))
        break;
      arrived[member] |= kind == 0;
      if (arrived[0] && arrived[1]) {
        hear(0.02); // the mean
        ++round;
        arrived[0] = arrived[1] = false;
      }
    }
    hear(0.005);
  }

  /// Sends greetings and proofs, some of which are right up to a few bits.
  void handshakes(int port, const Greeting &greeting) {
    for (uint32_t count = 1 + below(8); count > 0; --count) {
      Socket connection = connectTo("127.0.0.1", port, monotonicSeconds() + 5);
      Greeting mine = greeting, host;
      if (connection.fd < 0 || !say(connection.fd, changed(bytesOf(mine))) || below(2) ||
          !receiveBytes(connection.fd, &host, sizeof host, monotonicSeconds() + 0.02))
        continue;
      Bytes32 proof = proofOf(Side::Caller, below(2) ? secret : "", mine, host, Verdict::Welcome);
      say(connection.fd, changed(bytesOf(proof)));
      say(connection.fd, changed(controlMessage(1)));
    }
  }

  /// Sends handshakes to rank 0 while it waits for the others.
  void toStranger() {
    Place place = placeOf(0);
    place.size = place.localSize = 2;
    MeetingPoint point = meetingPointAt("127.0.0.1", place);
    point.ports = {freePort()};
    point.secret = secret;
    std::atomic<bool> over{false}; // a changed handshake may be valid by chance
    std::thread rank([&] {
      std::unique_ptr<TcpControl> plane;
      std::string error;
      CHECK(TcpControl::connect(place, point, &plane, &error) == PCRT_OK);
      over = true;
    });
    Greeting mine{Protocol::Ranks, point.run, 1, 2, 1, point.ports[0], {}, "fuzz"};
    handshakes(point.ports[0], mine);
    Socket right = call(point.ports[0], mine, over);
    right = Socket();
    rank.join();
  }

  std::mt19937 draw;
  int meetingPort, sent = 0;
};

} // namespace

/// Runs a meeting in a child process. The meeting begins again when its members are gone.
[[noreturn]] static void runSessions(uint32_t seed, int sessions, int log, int *sent) {
  int nothing = open("/dev/null", O_WRONLY);
  dup2(nothing, STDOUT_FILENO);
  setenv("PCRT_SECRET", secret.c_str(), 1);
  MeetingOptions options;
  options.port = freePort();
  options.minMembers = 2;
  options.patience = 0.01;
  options.log = "/proc/self/fd/" + std::to_string(log);
  std::thread([options] {
    for (;;)
      serveMeeting(options);
  }).detach();
  Fuzzer fuzzer(seed, options.port);
  for (int i = 0; i < sessions; ++i)
    *sent += fuzzer.session();
  _exit(failures ? PCRT_VERIFICATION : PCRT_OK);
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  int wanted = argc > 1 ? atoi(argv[1]) : 1000;
  uint32_t seed = argc > 2 ? uint32_t(atoi(argv[2])) : 1;
  // Messages are also counted if the child ends early.
  int *sent = static_cast<int *>(mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  int log = memfd_create("log", 0);
  for (; *sent < wanted; ++seed) {
    int before = *sent;
    pid_t child = fork();
    if (child == 0)
      runSessions(seed, 200, log, sent);
    int status = 0;
    waitpid(child, &status, 0);
    bool good = WIFEXITED(status) && (WEXITSTATUS(status) == PCRT_OK || WEXITSTATUS(status) == PCRT_PEER_LOST);
    expect(good && *sent > before, "seed " + std::to_string(seed) + ": status " + std::to_string(status));
    if (!good)
      break;
  }
  off_t bytes = lseek(log, 0, SEEK_END);
  std::string rounds(size_t(bytes), 0);
  CHECK(pread(log, rounds.data(), rounds.size(), 0) == bytes);
  auto ended = std::count(rounds.begin(), rounds.end(), '\n');
  expect(ended > 0, "no round of the meeting has ended");
  printf("%d messages, %lld rounds of the meeting\n", *sent, (long long)ended);
  return finishChecks() ? PCRT_VERIFICATION : PCRT_OK;
}
