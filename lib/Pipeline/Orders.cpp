//===- Orders.cpp - The named pipeline schedules -------------------------------------------===//
// naive and GPipe (Huang et al., 2019), 1F1B (Narayanan et al., 2019), interleaved (Narayanan et al., 2021), zero
// bubble H1, H2 (Qi et al., 2023) and V (Qi et al., 2024). All but naive and GPipe are one merge of a sequence of
// forwards and one of backwards.
//===-----------------------------------------------------------------------------===//
#include "pc/Pipeline/Schedule.h"

#include <algorithm>
#include <array>

using namespace pc::pipeline;

namespace {

/// A chunk and a microbatch.
using Item = std::pair<int, int>;
using Tasks = std::vector<Task>;

std::vector<int> chunksOf(const Problem &p, int device) {
  std::vector<int> chunks;
  for (int c = 0; c < p.chunks(); ++c)
    if (p.device[c] == device)
      chunks.push_back(c);
  return chunks;
}

/// Puts the recomputation right before its backward task, where a chunk recomputes.
Tasks withRecompute(const Problem &p, const Tasks &tasks) {
  Tasks out;
  for (const Task &task : tasks) {
    if (task.kind == Kind::B && p.has(Kind::R, task.chunk))
      out.push_back({Kind::R, task.chunk, task.microbatch});
    out.push_back(task);
  }
  return out;
}

void backward(const Problem &p, Tasks &out, int chunk, int microbatch) {
  out.push_back({Kind::B, chunk, microbatch});
  if (p.split)
    out.push_back({Kind::W, chunk, microbatch});
}

/// `warm` forwards, then one forward and one backward in turn; after a backward one weight gradient while more than
/// `lag` of them wait; the rest of them at the end.
Tasks merge(const Problem &p, const std::vector<Item> &forwards, const std::vector<Item> &backwards, int warm,
            int lag) {
  Tasks out;
  size_t f = 0, w = 0;
  auto forward = [&] {
    if (f < forwards.size()) {
      out.push_back({Kind::F, forwards[f].first, forwards[f].second});
      ++f;
    }
  };
  auto weight = [&] {
    out.push_back({Kind::W, backwards[w].first, backwards[w].second});
    ++w;
  };
  for (int i = 0; i < warm; ++i)
    forward();
  for (size_t b = 0; b < backwards.size(); ++b) {
    forward();
    out.push_back({Kind::B, backwards[b].first, backwards[b].second});
    if (p.split && b + 1 - w > static_cast<size_t>(lag))
      weight();
  }
  while (p.split && w < backwards.size())
    weight();
  return out;
}

/// All microbatches of one chunk.
std::vector<Item> allOf(const Problem &p, int chunk) {
  std::vector<Item> items;
  for (int i = 0; i < p.microbatches; ++i)
    items.push_back({chunk, i});
  return items;
}

Tasks naive(const Problem &p, int d) {
  Tasks out;
  std::vector<int> chunks = chunksOf(p, d);
  for (int i = 0; i < p.microbatches; ++i) {
    for (int c : chunks)
      out.push_back({Kind::F, c, i});
    for (auto c = chunks.rbegin(); c != chunks.rend(); ++c)
      backward(p, out, *c, i);
  }
  return out;
}

/// Backwards in ascending order too: the same time and memory as the other way round, and gradients sum in one order.
Tasks gpipe(const Problem &p, int d) {
  Tasks out;
  std::vector<int> chunks = chunksOf(p, d);
  for (int c : chunks)
    for (int i = 0; i < p.microbatches; ++i)
      out.push_back({Kind::F, c, i});
  for (auto c = chunks.rbegin(); c != chunks.rend(); ++c)
    for (int i = 0; i < p.microbatches; ++i)
      backward(p, out, *c, i);
  return out;
}

/// Group by group; inside a group chunk by chunk (backwards: from the last chunk); inside a chunk its microbatches.
Tasks interleaved(const Problem &p, int d) {
  int perDevice = p.chunks() / p.devices, first = 0, largest = 0;
  std::vector<Item> forwards, backwards;
  for (int size : interleavingGroups(p.devices, p.microbatches)) {
    for (int v = 0; v < perDevice; ++v)
      for (int i = first; i < first + size; ++i) {
        forwards.push_back({v * p.devices + d, i});
        backwards.push_back({(perDevice - 1 - v) * p.devices + d, i});
      }
    first += size;
    largest = std::max(largest, size);
  }
  return merge(p, forwards, backwards, 2 * (p.devices - 1 - d) + (perDevice - 1) * largest, 0);
}

/// Two chunks a device, front (0) and back (1). Written for at least 2p - 1 microbatches; those beyond m are left out,
/// which keeps an order legal.
Tasks zeroBubbleV(const Problem &p, int d) {
  int n = std::max(p.microbatches, 2 * p.devices - 1), chunk[2] = {d, 2 * p.devices - 1 - d};
  std::array<std::array<int, 2>, numKinds> count = {};
  Tasks out;
  auto put = [&](Kind kind, int side) {
    int i = count[static_cast<int>(kind)][side]++;
    if (i < p.microbatches)
      out.push_back({kind, chunk[side], i});
  };
  auto all = [&](int side) {
    put(Kind::F, side);
    put(Kind::B, side);
    put(Kind::W, side);
  };
  auto &forwards = count[static_cast<int>(Kind::F)], &weights = count[static_cast<int>(Kind::W)];
  for (int i = 0; i < 2 * (p.devices - d) - 1; ++i)
    put(Kind::F, 0);
  for (int i = 0; i < d; ++i) {
    put(Kind::F, 1);
    put(Kind::F, 0);
  }
  for (int i = 0; i < p.devices - d; ++i)
    all(1);
  while (forwards[1] < n) {
    if (forwards[0] < n)
      put(Kind::F, 0);
    put(Kind::B, 0);
    put(Kind::W, 0);
    all(1);
  }
  for (int i = 0; i < d; ++i) {
    put(Kind::B, 0);
    put(Kind::B, 1);
  }
  for (int i = 0; i < p.devices - d; ++i) {
    put(Kind::B, 0);
    put(Kind::W, 0);
  }
  for (int side : {1, 0})
    while (weights[side] < n)
      put(Kind::W, side);
  return out;
}

enum class Map { Any, RoundRobin, OneChunk, V };

/// One named schedule: what it needs of the problem, and a device's tasks.
struct Named {
  std::string_view name;
  Map map;
  bool split;
  Tasks (*tasks)(const Problem &, int device);
};

template <int perStage, int lagPerDevice> Tasks oneChunk(const Problem &p, int d) {
  return merge(p, allOf(p, d), allOf(p, d), perStage * (p.devices - 1 - d), lagPerDevice * d);
}

const Named schedules[] = {
    {"naive", Map::Any, false, naive},
    {"gpipe", Map::RoundRobin, false, gpipe},
    {"1f1b", Map::OneChunk, false, oneChunk<1, 0>},
    {"1f1b-eager", Map::OneChunk, false,
     oneChunk<2, 0>}, // two more in flight per device: hides hops up to half of F + B + W
    {"interleaved", Map::RoundRobin, false, interleaved},
    {"zb-h1", Map::OneChunk, true, oneChunk<1, 1>},
    {"zb-h2", Map::OneChunk, true, oneChunk<2, 2>},
    {"zb-v", Map::V, true, zeroBubbleV},
};

/// Why the problem does not suit, or nothing.
std::string mismatch(const Problem &p, const Named &schedule) {
  std::string name(schedule.name);
  bool whole = p.chunks() % p.devices == 0,
       roundRobinMap = whole && p.device == roundRobin(p.devices, p.chunks() / p.devices);
  if (schedule.map == Map::OneChunk && p.device != roundRobin(p.devices, 1))
    return "schedule '" + name + "' has one chunk on every device; use interleaved or zb-v for more";
  if (schedule.map == Map::RoundRobin && !roundRobinMap)
    return "schedule '" + name + "' has chunk c on device c mod " + std::to_string(p.devices);
  if (schedule.map == Map::V && p.device != vShape(p.devices))
    return "schedule '" + name + "' has two chunks on every device, folded as a V";
  if (schedule.split && !p.split)
    return "schedule '" + name + "' runs gradients of weights apart from those of inputs";
  return "";
}

} // namespace

std::vector<int> pc::pipeline::interleavingGroups(int devices, int microbatches) {
  int n = std::max(1, microbatches / devices);
  std::vector<int> sizes;
  for (int j = 0; j < n; ++j)
    sizes.push_back(microbatches / n + (j < microbatches % n));
  return sizes;
}

const std::vector<std::string_view> &pc::pipeline::orderNames() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> list;
    for (const Named &schedule : schedules)
      list.push_back(schedule.name);
    return list;
  }();
  return names;
}

std::optional<Order> pc::pipeline::namedOrder(const Problem &problem, std::string_view name, std::string &error) {
  for (const Named &schedule : schedules) {
    if (schedule.name != name)
      continue;
    if (error = mismatch(problem, schedule); !error.empty())
      return std::nullopt;
    Order order;
    for (int d = 0; d < problem.devices; ++d)
      order.push_back(withRecompute(problem, schedule.tasks(problem, d)));
    return order;
  }
  error = "'" + std::string(name) + "' is not a pipeline schedule";
  return std::nullopt;
}
