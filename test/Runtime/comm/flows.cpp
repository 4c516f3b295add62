//===- flows.cpp - Messages between pairs of ranks, over any transport ----===//
// usage: comm-flows [--transport=NAME] [--ranks=N (virtual ones)]
// Random sequences of sends, receives, moves and started moves that are legal with the flows' slots. All ranks draw the
// same sequence, and each runs its part of it at its own pace.
//===----------------------------------------------------------------------===//
#include "ThisRank.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

using namespace pcrt;

namespace {

/// One random sequence of sends, receives and moves, which is the same on all ranks.
struct Line {
  struct Channel {
    int from, to, id, slots;
    int64_t bytes, sent = 0, received = 0;
    int here = -1; ///< Its number on this rank.
  };
  enum What { Send, Receive, Move, Start, Wait };
  struct Event {
    What what;
    int channel;
  };
  std::vector<Channel> channels;
  std::vector<Event> events;
};

} // namespace

/// Draws a sequence that is legal for the numbers of slots: no event waits if events happen one by one.
static Line drawLine(int ranks, uint64_t seed) {
  std::mt19937_64 random(seed);
  auto below = [&](uint64_t n) { return int(random() % n); };
  Line line;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to)
      for (int id = 0; id < 2 && from != to; ++id)
        if (below(3) || (from == 0 && to == 1))
          line.channels.push_back({from, to, id, 1 + below(3), below(4) ? below(300) : 4 * below(50000)});
  int started = -1;
  for (int i = 0; i < 400; ++i) {
    int c = below(line.channels.size());
    Line::Channel &channel = line.channels[c];
    int64_t underWay = channel.sent - channel.received;
    if (int kind = below(12); kind == 0) {
      line.events.push_back({Line::Move, 0});
    } else if (kind == 1) {
      line.events.push_back({started < 0 ? Line::Start : Line::Wait, 0});
      started = started < 0 ? 0 : -1;
    } else if (underWay < channel.slots && (underWay == 0 || below(2))) {
      line.events.push_back({Line::Send, c});
      ++channel.sent;
    } else if (underWay > 0) {
      line.events.push_back({Line::Receive, c});
      ++channel.received;
    }
  }
  for (int c = 0; c < int(line.channels.size()); ++c)
    for (Line::Channel &channel = line.channels[c]; channel.received < channel.sent; ++channel.received)
      line.events.push_back({Line::Receive, c});
  if (started >= 0)
    line.events.push_back({Line::Wait, 0});
  return line;
}

static char byteOf(int channel, int64_t message, int64_t at) { return char(channel * 31 + message * 7 + at * 3); }

/// Flows can be opened only once, so a run has one sequence, which it repeats `rounds` times.
static pcrt_status runRank(Comm &own) {
  comm = &own;
  char *arena = nullptr;
  require(comm->allocateArena(1 << 20, &arena));
  const char *seed = getenv("FLOWS_SEED");
  uint64_t number = seed ? strtoull(seed, nullptr, 10) : 1;
  Line line = drawLine(comm->size(), number * 100 + uint64_t(comm->size()));
  std::vector<Flow> flows;
  for (Line::Channel &channel : line.channels) {
    if (channel.from != comm->rank() && channel.to != comm->rank())
      continue;
    channel.here = int(flows.size());
    Flow flow;
    flow.sends = channel.from == comm->rank();
    flow.peer = flow.sends ? channel.to : channel.from;
    flow.id = channel.id;
    flow.bytes = channel.bytes;
    flow.slots = channel.slots;
    flow.messages = 4;
    flow.name = "channel " + std::to_string(channel.id);
    flows.push_back(flow);
  }
  require(comm->openFlows(flows));

  Group all, pair;
  for (int rank = 0; rank < comm->size(); ++rank)
    all.ranks.push_back(rank);
  all.me = comm->rank();
  all.id = 0;
  all.name = "pp";
  int64_t elements = 1000;
  pcrt_move_desc sum{"all_reduce", PCRT_ALL_REDUCE, 0, PCRT_F32, PCRT_SUM, elements, 1, 1, 1, 1, "optimizer", 0, 0, 0};
  auto *moved = reinterpret_cast<float *>(arena), *under = reinterpret_cast<float *>(arena + (1 << 19));
  const void *ins[] = {under};
  void *outs[] = {under};
  Ticket ticket{&sum, 1, &all, ins, outs};
  float whole = float(comm->size() * (comm->size() + 1) / 2);
  auto fill = [&](float *at) {
    for (int64_t i = 0; i < elements; ++i)
      at[i] = float(comm->rank() + 1) * float(i);
  };
  auto check = [&](const float *at) {
    for (int64_t i = 0; i < elements; ++i)
      if (at[i] != whole * float(i))
        leave(PCRT_VERIFICATION, "a sum is wrong");
  };

  std::mt19937_64 pace(number * 977 + uint64_t(comm->rank()));
  std::vector<char> message(200000);
  int64_t checks = 0;
  std::vector<int64_t> counts(line.channels.size(), 0);
  for (int round = 0; round < 5; ++round) {
    for (const Line::Event &event : line.events) {
      if (pace() % 50 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(pace() % 500));
      Line::Channel &channel = line.channels[event.channel];
      int64_t &count = counts[event.channel];
      switch (event.what) {
      case Line::Send:
        if (channel.from != comm->rank())
          break;
        for (int64_t i = 0; i < channel.bytes; ++i)
          message[i] = byteOf(event.channel, count, i);
        ++count;
        require(comm->send(channel.here, message.data()));
        memset(message.data(), 77, channel.bytes); // it has been copied
        break;
      case Line::Receive:
        if (channel.to != comm->rank())
          break;
        require(comm->receive(channel.here, message.data()));
        for (int64_t i = 0; i < channel.bytes; ++i)
          if (message[i] != byteOf(event.channel, count, i))
            leave(PCRT_VERIFICATION, "byte " + std::to_string(i) + " of message " + std::to_string(count) +
                                         " of channel " + std::to_string(event.channel) + " is wrong");
        ++count;
        ++checks;
        break;
      case Line::Move:
        fill(moved);
        require(comm->move(sum, all, moved, moved));
        check(moved);
        break;
      case Line::Start:
        fill(under);
        ticket = {&sum, 1, &all, ins, outs};
        require(comm->start(ticket));
        break;
      case Line::Wait:
        require(comm->wait(ticket));
        check(under);
        break;
      }
    }
  }
  require(comm->barrier());
  if (comm->rank() == 0)
    printf("%s, %d ranks: %lld messages of %zu flows\n", comm->transport(), comm->size(), (long long)checks,
           flows.size());
  return PCRT_OK;
}

int main(int argc, char **argv) {
  int ranks = 1;
  for (int i = 1; i < argc; ++i) {
    if (!strncmp(argv[i], "--transport=", 12))
      setenv("PCRT_TRANSPORT", argv[i] + 12, 1);
    if (!strncmp(argv[i], "--ranks=", 8))
      ranks = atoi(argv[i] + 8);
  }
  std::string error;
  pcrt_status status = runRanks(ranks, false, runRank, &error);
  if (!error.empty())
    fprintf(stderr, "error: %s\n", error.c_str());
  return status;
}
