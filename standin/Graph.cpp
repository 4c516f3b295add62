//===- Graph.cpp - Graphs made by capture ---------------------------------===//
// An executable graph has copies of the captured nodes; each launch submits them as new items. PC_STANDIN_FAULT=edge
// leaves out one edge, and prints whether other edges imply it.
//===----------------------------------------------------------------------===//
#include "standin/Capture.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

using namespace pc::standin;

static std::set<CUgraphExec> &graphExecs() {
  static auto *execs = new std::set<CUgraphExec>;
  return *execs;
}

/// Returns true if `to` comes after `from` without the edge between them.
static bool isImplied(const ItemRef &from, const ItemRef &to) {
  std::set<Item *> seen;
  std::vector<Item *> todo{to.get()};
  while (!todo.empty()) {
    Item *item = todo.back();
    todo.pop_back();
    for (const ItemRef &before : item->after) {
      if (item == to.get() && before == from)
        continue;
      if (before == from)
        return true;
      if (seen.insert(before.get()).second)
        todo.push_back(before.get());
    }
  }
  return false;
}

/// Copies the nodes, so that a graph may be destroyed before its executable graphs.
static std::vector<ItemRef> copyNodes(const std::vector<ItemRef> &nodes) {
  std::map<Item *, ItemRef> copies;
  std::vector<ItemRef> result;
  for (const ItemRef &node : nodes) {
    auto copy = std::make_shared<Item>();
    copy->work = node->work;
    copy->lane = node->lane;
    copy->queue = node->queue;
    for (const ItemRef &before : node->after) {
      if (faultHere("edge")) {
        tellFault("'" + node->work->name + "' has no edge from '" + before->work->name + "'" +
                  (isImplied(before, node) ? " (redundant, because the order is implied)" : ""));
        continue;
      }
      copy->after.push_back(copies.at(before.get()));
    }
    copies[node.get()] = copy;
    result.push_back(std::move(copy));
  }
  return result;
}

/// Gives each node a queue of the graph, and returns the nodes in any order that edges allow; seed 0 keeps the order of
/// the capture. Nodes belong to no stream, so a graph keeps neither the queues of captured streams nor the order of
/// calls: "Scheduling is left up to the CUDA system" (Programming Guide, CUDA Graphs, Graph Structure).
static std::vector<ItemRef> scheduleNodes(const std::vector<ItemRef> &nodes) {
  if (options().graphQueues == 0)
    return nodes;
  std::map<const Item *, size_t> index;
  std::vector<std::vector<size_t>> next(nodes.size());
  std::vector<size_t> waitsFor(nodes.size());
  std::set<size_t> ready;
  size_t ordered = nodes.size(); // the last node so far that begins in the host's order
  auto follow = [&](size_t node, size_t before) {
    next[before].push_back(node);
    ++waitsFor[node];
  };
  for (size_t node = 0; node < nodes.size(); ++node) {
    index[nodes[node].get()] = node;
    for (const ItemRef &before : nodes[node]->after)
      follow(node, index.at(before.get()));
    if (nodes[node]->work->inOrder) {
      if (ordered < node)
        follow(node, ordered);
      ordered = node;
    }
    if (waitsFor[node] == 0)
      ready.insert(node);
  }
  std::vector<ItemRef> result;
  while (!ready.empty()) {
    size_t skipped = options().seed == 0 ? 0 : drawNumber() % ready.size();
    size_t node = *std::next(ready.begin(), static_cast<ptrdiff_t>(skipped));
    ready.erase(node);
    for (size_t other : next[node])
      if (--waitsFor[other] == 0)
        ready.insert(other);
    if (isStreamQueue(nodes[node]->queue))
      nodes[node]->queue = takeGraphQueue(nodes[node]->queue);
    result.push_back(nodes[node]);
  }
  return result;
}

/// Reports kernels of several priorities in a graph that ignores them. Capture copies a stream's priority to its kernel
/// nodes, but without the flag all run with the priority of the stream on which the graph is launched (cuda.h of CUDA
/// 13.0 at cuGraphInstantiate).
static void reportLostPriorities(const std::vector<ItemRef> &nodes) {
  const Item *first = nullptr;
  for (const ItemRef &node : nodes) {
    if (!node->work->isKernel())
      continue;
    first = first ? first : node.get();
    if (node->priority != first->priority)
      return report("cuGraphInstantiateWithFlags: '" + first->work->name + "' has priority " +
                    std::to_string(first->priority) + " and '" + node->work->name + "' has " +
                    std::to_string(node->priority) +
                    ", but a graph ignores both without CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY");
  }
}

PC_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  Lock lock(driverMutex());
  if (CUresult result = enterUncaptured(__func__))
    return result;
  if (flags & ~static_cast<unsigned long long>(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY))
    return refuse(CUDA_ERROR_NOT_SUPPORTED,
                  "cuGraphInstantiateWithFlags: only flags for node priorities are supported");
  if (!flags)
    reportLostPriorities(graph->nodes);
  static uint64_t nextId = 0;
  *exec = new CUgraphExec_st{++nextId, scheduleNodes(copyNodes(graph->nodes)), nullptr, graph->objects};
  graphExecs().insert(*exec);
  return CUDA_SUCCESS;
}

static CUresult checkExec(CUgraphExec exec, const char *function) {
  if (CUresult result = enter(function))
    return result;
  if (!graphExecs().count(exec))
    return refuse(CUDA_ERROR_INVALID_HANDLE, std::string(function) + ": this is not an instantiated graph");
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  Lock lock(driverMutex());
  if (CUresult result = checkExec(exec, __func__))
    return result;
  return enqueue(stream, {"graph upload", {}, {}, {}, {}, {}, false}, __func__);
}

PC_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  Lock lock(driverMutex());
  if (CUresult result = checkExec(exec, __func__))
    return result;
  if (deviceOf(stream) >= 0 && stream->capture)
    return refuse(CUDA_ERROR_NOT_SUPPORTED, "cuGraphLaunch: graphs inside graphs are not supported");
  // The begin comes after the stream and after the graph's previous launch.
  if (CUresult result = enqueue(stream, {"graph begin", {}, {}, {}, {}, {}, false}, __func__))
    return result;
  std::vector<ItemRef> begin = stream->heads;
  if (exec->last)
    begin.push_back(exec->last);
  std::map<Item *, ItemRef> launched;
  for (const ItemRef &node : exec->nodes) {
    auto item = std::make_shared<Item>();
    item->work = node->work;
    item->lane = exec->id << 32 ^ node->lane;
    item->queue = node->queue;
    for (const ItemRef &before : node->after)
      item->after.push_back(launched.at(before.get()));
    if (item->after.empty())
      item->after = begin;
    launched[node.get()] = item;
    submit(item);
  }
  stream->heads = begin;
  for (auto &[node, item] : launched)
    stream->heads.push_back(item);
  if (CUresult result = enqueue(stream, {"graph end", {}, {}, {}, {}, {}, false}, __func__))
    return result;
  exec->last = stream->heads.front();
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
  Lock lock(driverMutex());
  if (CUresult result = checkExec(exec, __func__))
    return result;
  graphExecs().erase(exec);
  delete exec;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  Lock lock(driverMutex());
  delete graph;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  Lock lock(driverMutex());
  if (nodes)
    for (size_t i = 0; i < std::min(*count, graph->nodes.size()); ++i)
      nodes[i] = reinterpret_cast<CUgraphNode>(graph->nodes[i].get());
  *count = graph->nodes.size();
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned) {
  Lock lock(driverMutex());
  FILE *file = fopen(path, "w");
  if (!file)
    return refuse(CUDA_ERROR_OPERATING_SYSTEM, std::string("cannot write ") + path);
  fprintf(file, "digraph step {\n");
  std::map<Item *, size_t> index;
  for (const ItemRef &node : graph->nodes) {
    size_t id = index.size();
    index[node.get()] = id;
    fprintf(file, "  n%zu [label=\"%s\"];\n", id, node->work->name.c_str());
    for (const ItemRef &before : node->after)
      fprintf(file, "  n%zu -> n%zu;\n", index.at(before.get()), id);
  }
  fprintf(file, "}\n");
  fclose(file);
  return CUDA_SUCCESS;
}
