//===- Members.cpp - Open local SGD: a run as one of several members ------===//
// Messages carry this rank's blocks of all parameters, one after the other, in f32. Between its own messages a rank
// answers pc-meet at any time: a request for its state, or the news that the others wait.
//===----------------------------------------------------------------------===//
#include "replicas/Members.h"
#include "base/TensorSum.h"
#include "base/Types.h"
#include "comm/Collective.h"
#include "comm/Environment.h"
#include "comm/Handshake.h"
#include "comm/ShmControl.h"
#include "comm/Sockets.h"
#include "comm/TcpMeeting.h"
#include "device/Profile.h"
#include "pcrt/description.h"
#include "replicas/Rounds.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

using namespace pcrt;

Members::Members(const Options &options, const Program &program, const std::string &programSum, Device &device,
                 Comm &comm)
    : program(program), device(device), comm(comm), address(options.meet), name(options.name), programSum(programSum) {
  if (!program.rounds.any() || program.rounds.replicas != 1 || program.rounds.codes)
    fail(PCRT_USAGE, "--meet needs a program for one replica of local SGD with f32 deltas; compile it with --mesh "
                     "outer=open,... --local-sgd=outer:32");
  if (name.empty() || name.size() >= sizeof MeetHello().name)
    fail(PCRT_USAGE, "--meet needs --name NAME with a unique name of at most " +
                         std::to_string(sizeof MeetHello().name - 1) + " bytes");
  if (options.steps % program.rounds.every)
    fail(PCRT_USAGE, "with --meet, --steps must be a multiple of the " + std::to_string(program.rounds.every) +
                         " steps of a round");
  forEachBlock(nullptr, [&](HostBlock &, int64_t bytes) { elements += bytes / 4; });
  onAllRanks(comm, [&] { connectTo(address); });
}

Members::~Members() {
  if (socket >= 0)
    close(socket);
}

/// HOST:PORT, where HOST may be an IPv6 address in brackets.
static std::pair<std::string, int> hostAndPort(const std::string &address) {
  size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  int port = colon == std::string::npos ? 0 : atoi(address.c_str() + colon + 1);
  if (host.empty() || port < 1 || port > 65535)
    fail(PCRT_USAGE, "--meet takes HOST:PORT, not '" + address + "'");
  addrinfo *found = nullptr;
  int error = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
  if (error)
    fail(PCRT_USAGE, "--meet " + address + ": " + gai_strerror(error));
  freeaddrinfo(found);
  return {host, port};
}

/// Waits for a pc-meet that knows the same secret.
void Members::connectTo(const std::string &address) {
  auto [host, port] = hostAndPort(address);
  std::string secret, problem;
  if (!findSecret(SharedBy::Members, host, &secret, &problem))
    fail(PCRT_USAGE, "--meet " + address + ": " + problem);
  Greeting mine{Protocol::Members, 0, comm.rank(), comm.size(), int32_t(getpid()), 0, {}, {}}, other;
  snprintf(mine.name, sizeof mine.name, "%s", name.c_str());
  bool told = false;
  for (double end = monotonicSeconds() + timeoutSeconds(); monotonicSeconds() < end; usleep(50000)) {
    Socket peer = pcrt::connectTo(host, port, std::min(end, monotonicSeconds() + 5));
    if (peer.fd < 0) {
      problem = told ? problem : strerror(errno);
      continue;
    }
    CallResult result = callHost(peer.fd, secret, mine, std::min(end, monotonicSeconds() + 5), &other);
    if (result == CallResult::Welcome) {
      socket = peer.release();
      configureSocket(socket);
      return;
    }
    problem = describe(result);
    if (comm.rank() == 0 && result != CallResult::NoAnswer && !std::exchange(told, true))
      fprintf(stderr, "warning: --meet %s: %s; trying again\n", address.c_str(), problem.c_str());
  }
  fail(PCRT_TIMEOUT, "cannot join pc-meet at " + address + ": " + problem);
}

void Members::lost(const std::string &why) const { fail(PCRT_PEER_LOST, "pc-meet at " + address + " " + why); }

void Members::send(MeetKind kind, const void *fields, size_t bytes, const std::string &elements) {
  MeetHead head{kind, 0, bytes + elements.size()};
  std::string text(reinterpret_cast<const char *>(&head), sizeof head);
  text.append(static_cast<const char *>(fields), bytes);
  for (const std::string *part : {const_cast<const std::string *>(&text), &elements})
    for (size_t at = 0; at < part->size();) {
      ssize_t went = ::send(socket, part->data() + at, part->size() - at, MSG_NOSIGNAL);
      if (went < 0 && errno == EINTR)
        continue;
      if (went <= 0)
        return; // its last message is read next
      at += size_t(went);
    }
}

void Members::receive(void *to, size_t bytes) {
  auto *at = static_cast<char *>(to);
  while (bytes > 0) {
    ssize_t got = recv(socket, at, bytes, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      lost("has ended");
    at += got;
    bytes -= size_t(got);
  }
}

MeetHead Members::nextHead() {
  MeetHead head{};
  receive(&head, sizeof head);
  if (head.kind == MeetKind::Refuse && head.bytes < 4096) {
    std::string why(head.bytes, 0);
    receive(why.data(), why.size());
    lost("rejected this member: " + printable(why));
  }
  return head;
}

/// Receives the fields of a message that `elements` elements follow.
template <typename T> T Members::receiveFields(const MeetHead &head, size_t elements) {
  if (head.bytes != sizeof(T) + 4 * elements)
    lost("sent a message with an invalid size of " + std::to_string(head.bytes) + " bytes");
  T fields;
  receive(&fields, sizeof fields);
  return fields;
}

bool Members::isReadable() const {
  pollfd one{socket, POLLIN, 0};
  return poll(&one, 1, 0) > 0;
}

/// Handles a message that can come at any time.
void Members::handle(const MeetHead &head) {
  if (head.kind == MeetKind::Ask && head.bytes == 0)
    giveState();
  else if (head.kind == MeetKind::Close && head.bytes == 0)
    awaited = true;
  else
    lost("sent a message of unknown kind " + std::to_string(uint32_t(head.kind)));
}

/// Calls f(block, bytes) for this rank's block of each parameter that is trained, of its state named `state`, or of
/// each parameter that is `frozen`.
template <typename F> void Members::forEachBlock(const char *state, F &&f, bool frozen) const {
  for (const Parameter &parameter : program.parameters) {
    if (parameter.frozen != frozen)
      continue;
    const Tensor &tensor = state ? static_cast<const Tensor &>(*program.stateOf(parameter, state)) : parameter;
    int64_t bytes = blockOf(program.mesh, tensor.shape, tensor.layout, comm.rank()).elements() * 4;
    HostBlock block(device, tensor.offset, bytes, HostBlock::Read);
    f(block, bytes);
  }
}

std::string Members::blocksOf(const char *state, bool frozen) const {
  std::string result;
  forEachBlock(state, [&](HostBlock &block, int64_t bytes) { result.append(block.data(), size_t(bytes)); }, frozen);
  return result;
}

void Members::setBlocks(const char *state, const char *from) {
  forEachBlock(state, [&](HostBlock &block, int64_t bytes) {
    memcpy(block.data(), from, size_t(bytes));
    block.store();
    from += bytes;
  });
}

static uint64_t sumOf(const std::string &bytes) {
  TensorSum sum = sumOfBytes(bytes.data(), int64_t(bytes.size()));
  return uint64_t(sum.high) << 32 | sum.low;
}

/// Frozen parameters are not sent, but have to be the same.
uint64_t Members::sharedSum() const {
  return sumOf(blocksOf(PCRT_SHARED) + blocksOf(PCRT_OUTER_MOMENTUM) + blocksOf(nullptr, /*frozen=*/true));
}

void Members::giveState() {
  std::string blocks = blocksOf(PCRT_SHARED) + blocksOf(PCRT_OUTER_MOMENTUM);
  MeetState state{round, sumOf(blocks)};
  send(MeetKind::State, &state, sizeof state, blocks);
}

/// Sets shared parameters and outer momentum to those of the others. The optimizer's states begin as zeros.
void Members::takeState(const MeetHead &head) {
  auto state = receiveFields<MeetState>(head, 2 * size_t(elements));
  std::string blocks(8 * size_t(elements), 0);
  receive(blocks.data(), blocks.size());
  if (sumOf(blocks) != state.sum)
    lost("sent a state whose checksum does not match");
  setBlocks(PCRT_SHARED, blocks.data());
  setBlocks(PCRT_OUTER_MOMENTUM, blocks.data() + 4 * elements);
  takeShared(program, device, comm.rank());
  for (const State &other : program.states) {
    if (other.name == PCRT_SHARED || other.name == PCRT_OUTER_MOMENTUM)
      continue;
    int64_t count = blockOf(program.mesh, other.shape, other.layout, comm.rank()).elements();
    HostBlock block(device, other.offset, count * elementBytes(other.dtype), HostBlock::Write);
    memset(block.data(), 0, size_t(count * elementBytes(other.dtype)));
    block.store();
  }
}

Members::Share Members::waitForBegin() {
  for (;;) {
    MeetHead head = nextHead();
    if (head.kind == MeetKind::State) {
      takeState(head);
    } else if (head.kind == MeetKind::Begin) {
      auto begin = receiveFields<MeetBegin>(head, 0);
      round = begin.round;
      awaited = false;
      return {begin.round, begin.steps, begin.firstSample};
    } else {
      handle(head);
    }
  }
}

Members::Share Members::join(int64_t step, int64_t samples) {
  Share share;
  onAllRanks(comm, [&] {
    if (step % program.rounds.every) // the steps of an incomplete round are lost
      takeShared(program, device, comm.rank());
    MeetHello hello;
    snprintf(hello.name, sizeof hello.name, "%s", name.c_str());
    snprintf(hello.program, sizeof hello.program, "%s", programSum.c_str());
    hello.rank = comm.rank(), hello.size = comm.size();
    hello.round = step / program.rounds.every, hello.every = program.rounds.every;
    hello.batch = program.batch, hello.samples = samples, hello.elements = elements;
    hello.sum = sharedSum();
    send(MeetKind::Hello, &hello, sizeof hello);
    share = waitForBegin();
  });
  return share;
}

bool Members::isAwaited() {
  onAllRanks(comm, [&] {
    while (isReadable())
      handle(nextHead());
  });
  std::vector<char> all(size_t(comm.size()));
  char mine = awaited;
  requireOk(comm, comm.allGatherBytes(&mine, 1, all.data()));
  return all[0];
}

void Members::meet(int64_t steps) {
  onAllRanks(comm, [&] {
    MeetArrive arrive{round, steps, sharedSum()};
    send(MeetKind::Arrive, &arrive, sizeof arrive, blocksOf(nullptr));
    MeetHead head;
    while ((head = nextHead()).kind != MeetKind::Mean)
      handle(head);
    std::string mean(4 * size_t(elements), 0);
    if (head.bytes != mean.size())
      lost("sent a mean with an invalid size of " + std::to_string(head.bytes) + " bytes");
    receive(mean.data(), mean.size());
    setBlocks(nullptr, mean.data());
    ++round;
  });
}

Members::Share Members::begin() {
  Share share;
  onAllRanks(comm, [&] { share = waitForBegin(); });
  return share;
}

void Members::leave() { send(MeetKind::Leave, nullptr, 0); }
