//===- Stall.cpp - Finds deadlocks between stages ------------------------------------------===//
// Nodes are instructions (reached, done) and collectives; an edge means "before". All instructions finish if and only
// if a topological sort reaches every node. If not, a breadth-first search from each stopped stream finds the shortest
// cycle of waits, which the error prints.
//===-----------------------------------------------------------------------------===//
#include "Stall.h"

#include <algorithm>
#include <deque>
#include <numeric>

using namespace pc::pipeline;

namespace {

/// An instruction: stage and index.
struct Place {
  int stage = 0, index = 0;
};

/// The graph of one program. run() may be called once. `buffered` is the number of messages of a flow that may be in
/// flight.
class WaitGraph {
public:
  WaitGraph(const Program &program, int buffered) : program(program), buffered(buffered) {
    first.push_back(0);
    for (const auto &instructions : program.stages)
      first.push_back(first.back() + static_cast<int>(instructions.size()));
    incoming.resize(2 * first.back());
    build();
    sortEdges();
  }

  /// Removes events whose predecessors are done, as long as there are any (Kahn). The remaining events wait in a cycle.
  StallResult run() {
    std::vector<int> ready;
    finished.assign(incoming.size(), false);
    for (size_t n = 0; n < incoming.size(); ++n)
      if (!incoming[n])
        ready.push_back(static_cast<int>(n));
    size_t count = 0;
    StallResult result;
    while (!ready.empty()) {
      int node = ready.back();
      ready.pop_back();
      finished[node] = true;
      ++count;
      for (int e = firstEdge[node]; e < firstEdge[node + 1]; ++e)
        if (!--incoming[edges[e].to])
          ready.push_back(edges[e].to);
    }
    if (count < incoming.size())
      explain(result);
    return result;
  }

private:
  int reached(Place at) const { return 2 * (first[at.stage] + at.index); }
  int done(Place at) const { return reached(at) + 1; }
  const Instruction &of(Place at) const { return program.stages[at.stage][at.index]; }
  void edge(int from, int to) {
    edges.push_back({from, to});
    ++incoming[to];
  }

  /// Adds two events per instruction, reached and done, and an edge for every event that must come before another.
  void build() {
    for (int d = 0; d < static_cast<int>(program.stages.size()); ++d) {
      std::map<std::string, int> previous;
      std::map<std::string, int> calls;
      for (int i = 0; i < static_cast<int>(program.stages[d].size()); ++i) {
        Place at{d, i};
        const Instruction &x = of(at);
        // Done comes after reached. An instruction of a stream is reached after the previous one is done.
        edge(reached(at), done(at));
        if (auto it = previous.find(x.stream); it != previous.end())
          edge(done({d, it->second}), reached(at));
        previous[x.stream] = i;
        for (int after : x.after)
          edge(done({d, after}), reached(at));
        for (const Part &part : x.parts)
          (part.send ? sends : receives)[part.flow].push_back(at);
        if (x.type == Instruction::Collective)
          collectives[x.group][calls[x.group]++].push_back(at);
      }
    }
    for (const auto &[flow, list] : sends) {
      const std::vector<Place> &other = receives[flow];
      for (size_t n = 0; n < std::min(list.size(), other.size()); ++n) {
        // A receive is done when its send has been reached.
        edge(reached(list[n]), done(other[n]));
        // A send is done when a slot is free, which is when the receive of the message `buffered` places earlier is
        // reached.
        if (n >= static_cast<size_t>(buffered))
          edge(reached(other[n - buffered]), done(list[n]));
      }
    }
    // A collective begins when every member has reached it. Each call has one more node, a hub.
    for (auto &[group, calls] : collectives) {
      size_t members = program.groups.at(group).size();
      for (auto &[number, places] : calls) {
        int hub = static_cast<int>(incoming.size());
        incoming.push_back(places.size() < members ? 1 : 0); // a member never arrives
        for (Place at : places) {
          edge(reached(at), hub);
          edge(hub, done(at));
        }
      }
    }
  }

  /// Sorts edges by source, in one list, because there are millions.
  void sortEdges() {
    firstEdge.resize(incoming.size() + 1);
    for (const Edge &edge : edges)
      ++firstEdge[edge.from + 1];
    std::partial_sum(firstEdge.begin(), firstEdge.end(), firstEdge.begin());
    std::vector<int> place(firstEdge);
    std::vector<Edge> sorted(edges.size());
    for (const Edge &edge : edges)
      sorted[place[edge.from]++] = edge;
    edges = std::move(sorted);
  }

  /// One wait of the head of a stopped stream, for `target`, which is at or after the head of stream `to`.
  struct Wait {
    int to;
    Place target;
  };

  /// Finds a shortest cycle of streams that wait for each other.
  void explain(StallResult &result) {
    // The head of a stream is its first instruction that is not done; streams that are done have none.
    std::vector<Place> heads;
    std::map<std::pair<int, std::string>, int> headOf;
    for (int d = 0; d < static_cast<int>(program.stages.size()); ++d)
      for (int i = 0; i < static_cast<int>(program.stages[d].size()); ++i)
        if (Place at{d, i}; !finished[done(at)] && headOf.try_emplace({d, of(at).stream}, heads.size()).second)
          heads.push_back(at);
    std::vector<std::vector<Wait>> waits(heads.size());
    for (size_t h = 0; h < heads.size(); ++h)
      for (Place target : waitsOf(heads[h]))
        if (!finished[done(target)])
          waits[h].push_back({headOf.at({target.stage, of(target).stream}), target});
    // A cycle through each head in turn; the shortest of all is the best explanation.
    std::vector<std::pair<int, Place>> best; // heads, and the instructions for which they wait
    for (size_t h = 0; h < heads.size(); ++h) {
      std::vector<int> from(heads.size(), -1);
      std::vector<Place> via(heads.size());
      // The search is breadth first, so the first cycle through `h` is a shortest one.
      std::deque<int> queue{static_cast<int>(h)};
      bool closed = false;
      while (!queue.empty() && !closed) {
        int at = queue.front();
        queue.pop_front();
        for (const Wait &wait : waits[at]) {
          if (wait.to == static_cast<int>(h)) {
            std::vector<std::pair<int, Place>> circle{{at, wait.target}};
            for (int back = at; back != static_cast<int>(h); back = from[back])
              circle.push_back({from[back], via[back]});
            if (best.empty() || circle.size() < best.size())
              best.assign(circle.rbegin(), circle.rend());
            closed = true;
            break;
          }
          if (from[wait.to] < 0) {
            from[wait.to] = at;
            via[wait.to] = wait.target;
            queue.push_back(wait.to);
          }
        }
      }
    }
    result.length = static_cast<int>(best.size());
    result.circle = "cycle of " + std::to_string(best.size());
    for (auto &[head, target] : best) {
      Place at = heads[head];
      result.circle += "\n  stage " + std::to_string(at.stage) + " #" + std::to_string(at.index) + " " + text(of(at)) +
                       " waits for stage " + std::to_string(target.stage) + " #" + std::to_string(target.index) + " " +
                       text(of(target));
    }
    if (best.empty()) { // not a cycle: a stage waits for an instruction that does not exist
      Place at = heads.front();
      result.circle = "stage " + std::to_string(at.stage) + " #" + std::to_string(at.index) + " " + text(of(at)) +
                      " waits for an event that never happens";
    }
  }

  /// The instructions for which the instruction `at`, which is reached but not done, waits.
  std::vector<Place> waitsOf(Place at) const {
    const Instruction &x = of(at);
    std::vector<Place> targets;
    for (int after : x.after)
      targets.push_back({at.stage, after});
    std::map<std::pair<bool, Flow>, int> seen;
    for (const Part &part : x.parts) {
      const auto &own = (part.send ? sends : receives).at(part.flow);
      const auto &otherSide = part.send ? receives : sends;
      auto other = otherSide.find(part.flow);
      if (other == otherSide.end())
        continue;
      // An instruction may have several parts in one flow. Part number `skip` of them is the one that is looked for.
      int skip = seen[{part.send, part.flow}]++;
      for (size_t n = 0; n < own.size(); ++n)
        if (own[n].stage == at.stage && own[n].index == at.index && skip-- == 0) {
          // A send waits for the receive of the message that is `buffered` messages earlier, whose slot it takes.
          int partner = static_cast<int>(n) - (part.send ? buffered : 0);
          if (partner >= 0 && partner < static_cast<int>(other->second.size()) &&
              !finished[reached(other->second[partner])])
            targets.push_back(other->second[partner]);
          break;
        }
    }
    if (x.type == Instruction::Collective)
      for (const auto &[number, places] : collectives.at(x.group))
        if (std::any_of(places.begin(), places.end(),
                        [&](Place o) { return o.stage == at.stage && o.index == at.index; }))
          for (Place other : places)
            if (other.stage != at.stage && !finished[reached(other)])
              targets.push_back(other);
    return targets;
  }

  const Program &program;
  int buffered;
  std::vector<int> first; ///< for each stage, the number of its first instruction
  /// `from` must happen before `to`.
  struct Edge {
    int from, to;
  };
  std::vector<Edge> edges;
  std::vector<int> firstEdge; ///< for each node, the first edge whose source it is
  std::vector<int> incoming;  ///< for each node, the number of edges from unfinished nodes
  std::vector<bool> finished;
  std::map<Flow, std::vector<Place>> sends, receives;
  std::map<std::string, std::map<int, std::vector<Place>>> collectives; ///< by group and number of the call
};

} // namespace

StallResult pc::pipeline::findStall(const Program &program, int buffered) { return WaitGraph(program, buffered).run(); }
