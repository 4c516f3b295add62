//===- started.cpp - Started moves, over any transport --------------------===//
// usage: comm-started [--transport=NAME] [--ranks=N (virtual ones)]
// Random sequences of starts, waits and moves over all groups of all meshes of this many ranks, at each rank's own
// pace.
//===----------------------------------------------------------------------===//
#include "Simulation.h"
#include "ThisRank.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

using namespace pcrt;

static thread_local int64_t checks = 0;

namespace {

/// A ticket with its moves, their buffers and the expected results.
struct Flight {
  std::vector<pcrt_move_desc> moves;
  std::vector<Expected> expected;
  std::vector<const void *> ins;
  std::vector<void *> outs;
  std::vector<int> places;
  std::vector<std::vector<char>> plain; ///< Memory outside of the arena.
  uint64_t salt = 0;
  Ticket ticket;
};

/// A random line of starts, waits and moves over several groups. All ranks draw the same line and run it at their own
/// pace. Buffers are scribbled over and used again as soon as the wait returns.
class Flights {
public:
  Flights(const std::vector<Group> &groups, char *arena, uint64_t seed)
      : groups(groups), arena(arena), common(seed), own(seed * 31 + uint64_t(comm->rank())), underWay(groups.size()) {
    for (int place = 0; place < numPlaces; ++place)
      freePlaces.push_back(place);
  }

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      pause();
      size_t group = draw(common, groups.size());
      uint64_t what = draw(common, 8);
      if (what < 4)
        start(group);
      else if (what < 7 && !underWay[group].empty())
        wait(group);
      else
        move(group);
    }
    for (size_t group = 0; group < groups.size(); ++group)
      while (!underWay[group].empty())
        wait(group);
  }

private:
  static constexpr int numPlaces = 256, placeBytes = 1 << 17;

  static uint64_t draw(uint64_t &state, uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  }

  void pause() {
    if (draw(own, 4) == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(draw(own, 300)));
  }

  pcrt_move_desc randomMove(const Group &group) {
    int64_t n = group.size();
    auto kind = int32_t(draw(common, 4)), dtype = int32_t(draw(common, 3)), reduction = int32_t(draw(common, 2));
    pcrt_move_desc desc{"random", kind, 0, dtype, reduction, 1, 1, 1, 1, 1, "backward", 0, 0, 0};
    desc.outer = int64_t(draw(common, 4));
    desc.extent = n * int64_t(draw(common, 5));
    desc.inner = 1 + int64_t(draw(common, 60));
    if (kind == PCRT_ALL_REDUCE) {
      desc.outer *= desc.extent * desc.inner;
      desc.extent = desc.inner = 1;
    }
    if (kind == PCRT_ALL_TO_ALL)
      desc.extent2 = n * int64_t(1 + draw(common, 2));
    return desc;
  }

  void start(size_t group) {
    // A ticket usually has few moves, and sometimes more than a transport can have in flight.
    int count = draw(common, 8) == 0 ? 64 : 1 + int(draw(common, 5));
    if (int(freePlaces.size()) < count)
      return;
    auto flight = std::make_unique<Flight>();
    flight->salt = draw(common, 1000000);
    for (int i = 0; i < count; ++i) {
      pcrt_move_desc desc = randomMove(groups[group]);
      bool inPlace = desc.kind == PCRT_ALL_REDUCE && draw(common, 2) == 0, outside = draw(common, 16) == 0;
      int place = freePlaces.back();
      freePlaces.pop_back();
      flight->places.push_back(place);
      char *in = arena + place * placeBytes;
      if (outside) {
        flight->plain.emplace_back(placeBytes);
        in = flight->plain.back().data();
      }
      flight->moves.push_back(desc);
      flight->expected.push_back(simulate(desc, groups[group], flight->salt + i));
      fill(desc, flight->expected.back(), in, flight->salt + i);
      flight->ins.push_back(in);
      flight->outs.push_back(inPlace ? in : in + placeBytes / 2);
    }
    flight->ticket = {flight->moves.data(), count, &groups[group], flight->ins.data(), flight->outs.data()};
    require(comm->start(flight->ticket));
    underWay[group].push_back(std::move(flight));
  }

  /// A blocking move starts while other moves are in flight.
  void move(size_t group) {
    while (!underWay[group].empty())
      wait(group);
    pcrt_move_desc desc = randomMove(groups[group]);
    Expected expected = simulate(desc, groups[group], 5);
    char *in = arena + numPlaces * placeBytes, *out = in + placeBytes / 2;
    fill(desc, expected, in, 5);
    require(comm->move(desc, groups[group], in, out));
    compare(desc, expected, out);
  }

  static void fill(const pcrt_move_desc &desc, const Expected &expected, char *in, uint64_t salt) {
    for (int64_t at = 0; at < expected.inCount; ++at)
      putBits(desc.dtype, in, at, element(desc.dtype, comm->rank(), at, salt));
  }

  static void compare(const pcrt_move_desc &desc, const Expected &expected, const void *out) {
    for (int64_t at = 0; at < expected.outCount; ++at)
      if (getBits(desc.dtype, static_cast<const char *>(out), at) != expected.out[at])
        leave(PCRT_VERIFICATION,
              "a move of kind " + std::to_string(desc.kind) + ": element " + std::to_string(at) + " is wrong");
    ++checks;
  }

  void wait(size_t group) {
    std::unique_ptr<Flight> flight = std::move(underWay[group].front());
    underWay[group].erase(underWay[group].begin());
    require(comm->wait(flight->ticket));
    for (size_t i = 0; i < flight->moves.size(); ++i) {
      compare(flight->moves[i], flight->expected[i], flight->outs[i]);
      memset(arena + flight->places[i] * placeBytes, 0xaa, placeBytes);
      freePlaces.push_back(flight->places[i]);
    }
  }

  const std::vector<Group> &groups;
  char *arena;
  uint64_t common, own;
  std::vector<std::vector<std::unique_ptr<Flight>>> underWay;
  std::vector<int> freePlaces;
};

} // namespace

static void checkMalformed(const Group &group, char *arena) {
  pcrt_move_desc mask{"mask", PCRT_MASK, 0, PCRT_F32, PCRT_SUM, 4, 1, 1, 1, 1, "forward", 0, 0, 0};
  const void *in = arena;
  void *out = arena;
  Ticket ticket{&mask, 1, &group, &in, &out};
  if (group.size() > 1 &&
      (comm->start(ticket) != PCRT_INTERNAL || comm->error().find("has no traffic") == std::string::npos))
    leave(PCRT_VERIFICATION, "not refused: start of a move without traffic");
}

static pcrt_status runRank(Comm &mine) {
  comm = &mine;
  checks = 0;
  char *arena;
  require(comm->allocateArena(64 << 20, &arena));
  uint64_t seed = 1000;
  forAllMeshes(comm->size(), [&](const std::vector<int> &mesh) {
    std::vector<Group> groups;
    for (int set = 1; set < 1 << mesh.size(); ++set) {
      std::vector<int> axes;
      for (int axis = 0; axis < int(mesh.size()); ++axis)
        if (set >> axis & 1)
          axes.push_back(axis);
      groups.push_back(makeGroup(mesh, axes, int(groups.size())));
    }
    Flights(groups, arena, ++seed).run(250);
  });
  checkMalformed(makeGroup({comm->size()}, {0}, 0), arena);
  require(comm->barrier());
  if (comm->rank() == 0)
    printf("%s, %d ranks: %ld checks passed on each rank\n", comm->transport(), comm->size(), long(checks));
  return PCRT_OK;
}

int main(int argc, char **argv) {
  int ranks = 1;
  for (int i = 1; i < argc; ++i) {
    if (!strncmp(argv[i], "--transport=", 12)) {
      setenv("PCRT_TRANSPORT", argv[i] + 12, 1);
    } else if (!strncmp(argv[i], "--ranks=", 8) && atoi(argv[i] + 8) > 0) {
      ranks = atoi(argv[i] + 8);
    } else {
      fprintf(stderr, "usage: comm-started [--transport=NAME] [--ranks=N]\n");
      return PCRT_USAGE;
    }
  }
  std::string error;
  pcrt_status status = runRanks(ranks, false, runRank, &error);
  if (!error.empty())
    fprintf(stderr, "error: %s\n", error.c_str());
  return status;
}
