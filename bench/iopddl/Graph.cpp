//===- Graph.cpp - Reading and pricing the contest's graphs ---------------===//
#include "Graph.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include <map>

using namespace iopddl;
namespace json = llvm::json;
using llvm::Twine;

static llvm::Error wrong(const Twine &what) { return llvm::createStringError("error: " + what); }

/// Whole numbers from 0 on.
static bool read(const json::Value &value, std::vector<int64_t> &to) {
  const json::Array *array = value.getAsArray();
  if (!array)
    return false;
  to.reserve(array->size());
  for (const json::Value &entry : *array) {
    std::optional<int64_t> number = entry.getAsInteger();
    if (!number || *number < 0)
      return false;
    to.push_back(*number);
  }
  return true;
}

static llvm::Error readNodes(const json::Object &nodes, Graph &graph) {
  const json::Array *intervals = nodes.getArray("intervals"), *costs = nodes.getArray("costs"),
                    *usages = nodes.getArray("usages");
  if (!intervals || !costs || !usages || intervals->size() != costs->size() || intervals->size() != usages->size())
    return wrong("nodes need as many intervals as costs and usages");
  for (size_t i = 0; i < intervals->size(); ++i) {
    Node &node = graph.nodes.emplace_back();
    std::vector<int64_t> interval;
    if (!read((*intervals)[i], interval) || interval.size() != 2)
      return wrong("node " + Twine(i) + ": an interval is two whole numbers");
    std::tie(node.begin, node.end) = std::pair(interval[0], interval[1]);
    if (!read((*costs)[i], node.costs) || !read((*usages)[i], node.usages) || node.costs.empty() ||
        node.costs.size() != node.usages.size())
      return wrong("node " + Twine(i) +
                   " needs a cost and a usage, whole numbers from 0 on, for each of its strategies");
  }
  return llvm::Error::success();
}

static llvm::Error readEdges(const json::Object &edges, Graph &graph) {
  const json::Array *nodes = edges.getArray("nodes"), *costs = edges.getArray("costs");
  if (!nodes || !costs || nodes->size() != costs->size())
    return wrong("edges need nodes and as many costs");
  for (size_t i = 0; i < nodes->size(); ++i) {
    Edge &edge = graph.edges.emplace_back();
    std::vector<int64_t> ends;
    if (!read((*nodes)[i], ends) || ends.empty())
      return wrong("edge " + Twine(i) + " needs numbers of nodes");
    size_t combinations = 1;
    for (int64_t end : ends) {
      if (static_cast<size_t>(end) >= graph.nodes.size())
        return wrong("edge " + Twine(i) + ": there is no node " + Twine(end));
      edge.nodes.push_back(end);
      combinations *= graph.nodes[end].costs.size();
    }
    if (!read((*costs)[i], edge.costs) || edge.costs.size() != combinations)
      return wrong("edge " + Twine(i) + " needs " + Twine(combinations) + " costs, whole numbers from 0 on");
  }
  return llvm::Error::success();
}

llvm::Expected<Graph> iopddl::readGraph(llvm::StringRef path) {
  auto file = llvm::MemoryBuffer::getFile(path);
  if (!file)
    return wrong(path + ": " + file.getError().message());
  llvm::Expected<json::Value> parsed = json::parse((*file)->getBuffer());
  if (!parsed)
    return wrong(path + ": " + llvm::toString(parsed.takeError()));
  const json::Object *root = parsed->getAsObject(), *problem = root ? root->getObject("problem") : nullptr;
  const json::Object *nodes = problem ? problem->getObject("nodes") : nullptr;
  const json::Object *edges = problem ? problem->getObject("edges") : nullptr;
  if (!nodes || !edges)
    return wrong(path + " has no problem with nodes and edges");
  Graph graph;
  graph.name = problem->getString("name").value_or("").str();
  if (const json::Value *limit = problem->get("usage_limit")) {
    graph.limit = limit->getAsInteger();
    if (!graph.limit)
      return wrong("usage_limit is no whole number");
  }
  if (llvm::Error error = readNodes(*nodes, graph))
    return error;
  if (llvm::Error error = readEdges(*edges, graph))
    return error;
  return graph;
}

__int128 iopddl::costOf(const Graph &graph, const Choice &choice) {
  __int128 cost = 0;
  for (auto [node, strategy] : llvm::zip_equal(graph.nodes, choice))
    cost += node.costs[strategy];
  for (const Edge &edge : graph.edges) {
    size_t at = 0;
    for (unsigned node : edge.nodes)
      at = at * graph.nodes[node].costs.size() + choice[node];
    cost += edge.costs[at];
  }
  return cost;
}

std::vector<std::vector<unsigned>> iopddl::moments(const Graph &graph) {
  std::map<int64_t, std::pair<std::vector<unsigned>, std::vector<unsigned>>> events; // what begins and what ends
  for (auto [i, node] : llvm::enumerate(graph.nodes))
    if (node.begin < node.end) {
      events[node.begin].first.push_back(i);
      events[node.end].second.push_back(i);
    }
  std::vector<std::vector<unsigned>> all;
  std::vector<bool> alive(graph.nodes.size());
  bool hasGrown = false;
  for (const auto &[moment, event] : events) {
    const auto &[begins, ends] = event;
    if (!ends.empty() && hasGrown) { // as many as will be alive before something ends
      std::vector<unsigned> &now = all.emplace_back();
      for (unsigned i = 0; i < alive.size(); ++i)
        if (alive[i])
          now.push_back(i);
      hasGrown = false;
    }
    for (unsigned i : ends)
      alive[i] = false;
    for (unsigned i : begins)
      alive[i] = true;
    hasGrown |= !begins.empty();
  }
  return all;
}
