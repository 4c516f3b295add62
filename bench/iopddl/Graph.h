//===- Graph.h - A graph of the contest on intra-operator parallelism -----===//
// Nodes have strategies, each with a cost and, while the node's interval lasts, a usage; edges have a cost for each
// combination of their nodes' strategies. The sum of costs is to be least, and at no moment may usages exceed a limit.
//===----------------------------------------------------------------------===//
#ifndef PC_BENCH_IOPDDL_GRAPH_H
#define PC_BENCH_IOPDDL_GRAPH_H

#include "../../lib/Shard/Solver.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace iopddl {

/// Costs from here on are what graphs write for combinations that are forbidden.
constexpr int64_t forbidden = 1000000000000000000;

struct Node {
  int64_t begin = 0, end = 0; ///< the moments from begin to before end
  std::vector<int64_t> costs, usages;
};

struct Edge {
  std::vector<unsigned> nodes;
  std::vector<int64_t> costs; ///< row major over the strategies of `nodes`
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::optional<int64_t> limit;
};

/// A strategy for each node.
using Choice = std::vector<unsigned>;

/// Reads the contest's JSON; whatever is wrong with it is an error that says where.
llvm::Expected<Graph> readGraph(llvm::StringRef path);

/// The contest's cost.
__int128 costOf(const Graph &graph, const Choice &choice);

/// The nodes that are alive at moments when a limit may be exceeded: of moments at which all that are alive are alive
/// at another, too, one stays.
std::vector<std::vector<unsigned>> moments(const Graph &graph);

} // namespace iopddl

#endif
