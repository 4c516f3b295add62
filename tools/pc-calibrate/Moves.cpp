//===- Moves.cpp - Measurements of moves between ranks --------------------===//
// The collectives, messages and overlaps of Bench. Groups are those of plans: a node, two neighbours in it, one rank
// per node.
//===----------------------------------------------------------------------===//
#include "Bench.h"
#include "device/Profile.h"

#include <algorithm>
#include <cmath>

using namespace pcrt;
using namespace pc_calibrate;

double GroupMoves::bandwidth() const { return std::sqrt(rate(1) * rate(2)); }

double GroupMoves::rate(size_t kind) const {
  return large[kind].work / std::max(large[kind].seconds - small[kind].seconds, 1e-9);
}

Bench::Bench(Target &target, Comm &comm, int nodeRanks) : target(target), comm(comm) {
  int me = comm.rank(), first = me / nodeRanks * nodeRanks;
  for (int rank = 0; rank < comm.size(); ++rank) {
    all.ranks.push_back(rank);
    if (rank / nodeRanks == me / nodeRanks)
      node.ranks.push_back(rank);
    if (rank % nodeRanks == me % nodeRanks)
      across.ranks.push_back(rank);
  }
  all.me = me;
  node.me = me - first;
  across.me = me / nodeRanks;
  if (nodeRanks > 2 && nodeRanks % 2 == 0) {
    int start = first + node.me / 2 * 2;
    pair.ranks = {start, start + 1};
    pair.me = me - start;
  }
  all.name = "all", node.name = "node", pair.name = "pair", across.name = "across";
  int id = 0;
  for (Group *group : {&all, &node, &pair, &across}) {
    if (group->ranks.empty()) // a communicator of only this rank
      group->ranks = {me};
    group->id = id++;
    tables.groups.push_back(*group);
  }
  results.nodeRanks = nodeRanks;
  results.nodes = comm.size() / nodeRanks;
}

static const char *nameOf(pcrt_move_kind kind) {
  return kind == PCRT_ALL_REDUCE ? "all_reduce" : kind == PCRT_ALL_GATHER ? "all_gather" : "reduce_scatter";
}

/// Adds a collective of `bytes` bytes to the table and returns its number.
int Bench::addMove(pcrt_move_kind kind, int64_t bytes, const Group &group) {
  bool whole = kind == PCRT_ALL_REDUCE; // else n blocks
  int64_t n = group.size(), count = bytes / 4 / n * n;
  tables.moves.push_back({nameOf(kind), kind, group.id, PCRT_F32, PCRT_SUM, whole ? count : 1, whole ? 1 : n,
                          whole ? 1 : count / n, 1, 1, "", 0, 0, 0});
  return int(tables.moves.size()) - 1;
}

/// The places of a move's operands. An all_reduce is in place. Small moves use memory that was just written; large ones
/// use memory that no cache holds, because sources of 12 MiB on two ranks may or may not fit into a cache of 32 MiB.
Bench::Places Bench::placesOf(pcrt_move_kind kind, int64_t bytes, int64_t members) const {
  int64_t block = (bytes / members + 4095) / 4096 * 4096;
  int64_t in = kind == PCRT_ALL_GATHER ? block : kind == PCRT_REDUCE_SCATTER ? bytes : 0;
  int64_t stride = in + (kind == PCRT_REDUCE_SCATTER ? block : bytes);
  int64_t count = bytes < sizes.largeMove ? 1 : std::max<int64_t>(1, otherBytes / stride);
  return {productBytes, productBytes + in, stride, int(count)};
}

void Bench::addGroup(GroupMoves &moves, const Group &group, const std::string &where) {
  moves.size = group.size();
  moves.large.reserve(3), moves.small.reserve(3); // cases point to them
  double n = moves.size;
  for (pcrt_move_kind kind : {PCRT_ALL_REDUCE, PCRT_ALL_GATHER, PCRT_REDUCE_SCATTER})
    for (int64_t bytes : {sizes.largeMove, 4 * KiB}) {
      bool isSmall = bytes == 4 * KiB;
      std::vector<Measurement> &to = isSmall ? moves.small : moves.large;
      // Bytes that a rank sends in a ring.
      double sent = (n - 1) / n * double(bytes) * (kind == PCRT_ALL_REDUCE ? 2 : 1);
      to.push_back(named(nameOf(kind) + (isSmall ? " of 4 kB" : inMiB(bytes)) + where, sent, isSmall));
      int move = addMove(kind, bytes, group);
      Places places = placesOf(kind, bytes, moves.size);
      cases.push_back({&to.back(),
                       [this, move, places]() mutable {
                         int64_t at = places.next();
                         target.move(move, places.in + at, places.out + at);
                       },
                       places.count});
    }
}

void Bench::addMoves() {
  if (node.size() > 1)
    addGroup(results.node, node, results.nodes > 1 ? " in a node" : "");
  if (pair.size() > 1)
    addGroup(results.pair, pair, " between two");
  if (across.size() > 1)
    addGroup(results.across, across, " between nodes");
  addMessages();
}

/// Adds messages between neighbours in a node, and between the first ranks of consecutive nodes, all pairs at once.
void Bench::addMessages() {
  auto add = [&](GroupMoves &moves, const Group &group, const char *where, const std::string &name) {
    int peer = group.me ^ 1, first = peer < group.size() ? int(tables.flows.size()) : -1;
    tables.pairs.push_back(first);
    for (bool sends : {true, false})
      if (first >= 0)
        tables.flows.push_back({group.ranks[peer], group.id, sends, messageBytes, 2, 1, where});
    moves.message = named(name, 0, true);
    cases.push_back({&moves.message, [this, first, begins = group.me % 2 == 0] {
                       if (first >= 0)
                         target.messages(first, begins);
                     }});
  };
  if (node.size() > 1)
    add(results.node, node, "in a node",
        "message of 4 kB and back" + std::string(results.nodes > 1 ? " in a node" : ""));
  if (across.size() > 1)
    add(results.across, across, "between nodes", "message of 4 kB and back between nodes");
}

/// Adds the time for which ranks that have just done the same work wait for the last of them.
void Bench::addMeeting() {
  if (node.size() == 1 || results.device.multiprocessors > 0)
    return;
  results.meeting = named("meeting after " + results.products[0].name, 0, true);
  int move = addMove(PCRT_ALL_REDUCE, 4 * KiB, node);
  cases.push_back({&results.meeting, [this, move] {
                     target.product(0);
                     int64_t start = nanoseconds();
                     target.move(move, productBytes, productBytes);
                     waited += double(nanoseconds() - start) * 1e-9;
                   }});
  cases.back().own = &waited;
}

/// Adds a product while a move is in flight.
void Bench::addBeside() {
  if (comm.size() == 1)
    return;
  const Group &group = node.size() > 1 ? node : across;
  bool half = results.device.multiprocessors > 0;
  const Measurement &alone = (half ? results.bf16Products : results.products)[sizes.beside];
  const Shape &shape = (half ? sizes.bf16Products : sizes.products)[sizes.beside];
  results.beside = named(alone.name + " beside all_gather" + inMiB(sizes.largeMove), alone.work);
  int product = addProduct(shape, half ? PCRT_BF16 : PCRT_F32, /*isBeside=*/true);
  int move = addMove(PCRT_ALL_GATHER, sizes.largeMove, group);
  Places places = placesOf(PCRT_ALL_GATHER, sizes.largeMove, group.size());
  cases.push_back({&results.beside,
                   [this, product, move, places]() mutable {
                     int64_t at = places.next();
                     target.start(move, places.in + at, places.out + at);
                     target.product(product);
                     target.wait();
                   },
                   places.count});
}
