//===- Moves.cpp - what ranks send each other ------------------------------===//
#include "Bench.h"
#include "comm/Collective.h"

#include <cmath>

using namespace pcrt;
using namespace pc_calibrate;

double GroupMoves::bandwidth() const {
  double product = 1;
  for (size_t i = 0; i < large.size(); ++i)
    product *= large[i].work / std::max(large[i].seconds - small[i].seconds, 1e-9);
  return std::pow(product, 1 / double(large.size()));
}

Bench::Bench(Comm &comm, int nodeRanks) : comm(comm), pool(threadsOfThisRank()) {
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
  int id = 0;
  for (Group *group : {&all, &node, &pair, &across})
    group->id = id++;
  results.nodeRanks = nodeRanks;
  results.nodes = comm.size() / nodeRanks;
}

ParallelFor Bench::workers() {
  return {&pool, [](void *pool, int64_t items, ParallelFor::Body body, void *arg) {
            static_cast<Pool *>(pool)->ranges(items, [&](int, int64_t lo, int64_t hi) { body(arg, lo, hi); });
          }};
}

namespace {
struct Collective {
  const char *name;
  pcrt_move_kind kind;
};
} // namespace

/// A collective of so many bytes among n ranks.
static pcrt_move_desc describe(const Collective &move, int64_t bytes, int64_t n) {
  bool gathers = move.kind == PCRT_ALL_GATHER;
  int64_t count = bytes / 4 / n * n;
  return {move.name, move.kind, 0, PCRT_F32, PCRT_SUM, gathers ? 1 : count, gathers ? n : 1, gathers ? count / n : 1, 1,
          1,         "",        0, 0,        0};
}

/// " of 24 MiB"
static std::string inMiB(int64_t bytes) { return " of " + std::to_string(bytes / MiB) + " MiB"; }

void Bench::addGroup(GroupMoves &moves, const Group &group, const std::string &where) {
  moves.size = group.size();
  moves.large.reserve(2), moves.small.reserve(2); // cases point to them
  double n = moves.size;
  for (const Collective &kind : {Collective{"all_reduce", PCRT_ALL_REDUCE}, {"all_gather", PCRT_ALL_GATHER}})
    for (int64_t bytes : {largeBytes, int64_t(4096)}) {
      bool isSmall = bytes == 4096;
      std::vector<Measurement> &to = isSmall ? moves.small : moves.large;
      double sent = (n - 1) / n * double(bytes) * (kind.kind == PCRT_ALL_REDUCE ? 2 : 1); // by a rank in a ring
      to.push_back(named(kind.name + (isSmall ? " of 4 kB" : inMiB(bytes)) + where, sent, isSmall));
      pcrt_move_desc desc = describe(kind, bytes, moves.size);
      cases.push_back({&to.back(), [this, desc, &group] {
                         char *out = desc.kind == PCRT_ALL_GATHER ? arena + 32 * MiB : arena;
                         requireOk(comm, comm.move(desc, group, arena, out, workers()));
                       }});
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

/// Between neighbours in a node, and between the first ranks of nodes that follow each other, all pairs at once.
void Bench::addMessages() {
  constexpr int64_t bytes = 4096;
  std::vector<Flow> flows;
  message.resize(bytes);
  auto open = [&](const Group &group, const char *name) {
    int peer = group.me ^ 1, first = int(flows.size());
    if (peer >= group.size())
      return -1;
    for (bool sends : {true, false})
      flows.push_back({group.ranks[peer], group.id, sends, bytes, 2, 1, name});
    return first;
  };
  auto add = [&](GroupMoves &moves, const Group &group, int flow, const std::string &name) {
    moves.message = named(name, 0, true);
    bool begins = group.me % 2 == 0;
    cases.push_back({&moves.message, [this, flow, begins] {
                       if (flow < 0)
                         return;
                       if (begins)
                         requireOk(comm, comm.send(flow, message.data()));
                       requireOk(comm, comm.receive(flow + 1, message.data()));
                       if (!begins)
                         requireOk(comm, comm.send(flow, message.data()));
                     }});
  };
  int inNode = node.size() > 1 ? open(node, "in a node") : -1;
  int between = across.size() > 1 ? open(across, "between nodes") : -1;
  if (comm.size() > 1)
    requireOk(comm, comm.openFlows(std::move(flows)));
  if (node.size() > 1)
    add(results.node, node, inNode, "message of 4 kB and back" + std::string(results.nodes > 1 ? " in a node" : ""));
  if (across.size() > 1)
    add(results.across, across, between, "message of 4 kB and back between nodes");
}

/// A product while a move is under way.
void Bench::addBeside() {
  if (comm.size() == 1)
    return;
  const Group &group = node.size() > 1 ? node : across;
  results.beside = named(results.products[0].name + " beside all_gather" + inMiB(largeBytes), results.products[0].work);
  static const Collective gather{"all_gather beside work", PCRT_ALL_GATHER};
  cases.push_back({&results.beside, [this, &group, desc = describe(gather, largeBytes, group.size())] {
                     // Operands and results of the move, and of the product, lie apart.
                     const void *in = arena + 96 * MiB;
                     void *out = arena + 128 * MiB;
                     Ticket ticket;
                     ticket.moves = &desc;
                     ticket.count = 1;
                     ticket.group = &group;
                     ticket.ins = &in;
                     ticket.outs = &out;
                     requireOk(comm, comm.start(ticket, workers()));
                     if (!gemms->run(0, arena, arena + 32 * MiB, arena + 64 * MiB, nullptr, nullptr, &problem))
                       throw std::string(problem);
                     requireOk(comm, comm.wait(ticket, workers()));
                   }});
}
