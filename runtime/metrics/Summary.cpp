//===- Summary.cpp - The summary of a run ---------------------------------===//
// The traffic is deliberately computed twice, so this file does not use the rows of pcrt/moves.h. The compiler's report
// counts the traffic of the IR (lib/Cost/Cost.cpp), and a run counts the traffic of its program's tables. The
// end-to-end tests compare the two. Ranks with equal figures share an entry.
//===----------------------------------------------------------------------===//
#include "metrics/Summary.h"
#include "base/Types.h"
#include "comm/Collective.h"
#include "comm/Moves.h"
#include "comm/Rows.h"
#include "cpu/Pool.h"
#include "pcrt/codes.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

using namespace pcrt;

int64_t pcrt::payloadBytes(const pcrt_move_desc &move, int64_t members) {
  if (int64_t routed = routedOf(move)) // counts all rows of all tokens
    return move.outer * move.extent * move.middle * std::min(routed, move.extent2) * move.inner *
           elementBytes(move.dtype);
  int64_t own = move.outer * move.extent * move.inner * move.middle * move.extent2 * elementBytes(move.dtype);
  return move.kind == PCRT_PERMUTE ? members * own : own;
}

int64_t pcrt::wireBytes(const pcrt_move_desc &move, int64_t payload, int64_t members, bool isRoot) {
  switch (move.kind) {
  case PCRT_BROADCAST:
  case PCRT_REDUCE:
    return isRoot ? (members - 1) * payload : payload;
  case PCRT_SCATTER:
  case PCRT_GATHER:
    return (isRoot ? members - 1 : 1) * payload / members;
  case PCRT_PERMUTE:
    return move.shift ? payload / members : 0; // if the shift depends on the rank (`with`), it is 0 on one of n ranks
  case PCRT_ALL_REDUCE:
    return 2 * (members - 1) * payload / members;
  case PCRT_ALL_GATHER:
  case PCRT_REDUCE_SCATTER:
    return (members - 1) * payload / members;
  case PCRT_ALL_TO_ALL:
    return (members - 1) * payload / (members * members);
  case PCRT_CARRY:
    return payload;
  default:
    return 0;
  }
}

/// A row of the table of traffic. The axis of a carry is its link.
struct TrafficRow {
  std::string axis, move, phase;
  int64_t count = 0, payload = 0, wire = 0;
};

/// Adds moves by axes, kind and phase.
static void addMoves(const pcrt_context &context, const std::vector<int64_t> &counts, std::vector<TrafficRow> &rows) {
  for (size_t i = 0; i < counts.size(); ++i) {
    const pcrt_move_desc &move = context.program.abi.moves[i];
    const Group &group = context.groups[move.group];
    const bool carries = move.kind == PCRT_CARRY;
    if (counts[i] == 0 || (!carries && isLocalMove(move, group)))
      continue;
    const std::string space = move.reduction & PCRT_CARRY_HOST ? "host" : "disk";
    const std::string axis = !carries                          ? group.name
                             : move.reduction & PCRT_CARRY_OUT ? "device>" + space
                                                               : space + ">device";
    const bool asCodes = move.codes && !routedOf(move);
    const char *name = routedOf(move) ? "all_to_all_rows" : moveKindName(asCodes ? PCRT_ALL_GATHER : move.kind);
    std::string phase = move.phase ? move.phase : "";
    auto row = std::find_if(rows.begin(), rows.end(), [&](const TrafficRow &row) {
      return row.axis == axis && row.move == name && row.phase == phase;
    });
    if (row == rows.end())
      row = rows.insert(rows.end(), {axis, name, phase});
    row->count += counts[i];
    int64_t payload = payloadBytes(move, group.size());
    int64_t wire = wireBytes(move, payload, group.size(), group.me == 0);
    if (asCodes) { // every member sends its codes to all others
      wire = 4 * (group.size() - 1) * pcrt_code_words(move.outer * move.extent * move.inner);
      payload = wire * group.size() / (group.size() - 1);
    }
    row->payload += counts[i] * payload;
    // Only rows that were sent count; their number depends on the tokens' choices.
    row->wire += routedOf(move) ? context.rowsSent[i] * move.inner * elementBytes(move.dtype) : counts[i] * wire;
  }
}

/// The traffic of one step, and of the end of a round.
static Json trafficOf(const pcrt_context &context) {
  std::vector<TrafficRow> rows;
  addMoves(context, context.moveCounts, rows);
  addMoves(context, context.roundCounts, rows);
  const pcrt_program &abi = context.program.abi;
  TrafficRow sent;
  for (int i = 0; i < abi.num_flows; ++i) {
    if (!abi.flows[i].sends)
      continue;
    sent.count += context.flowCounts[i];
    sent.payload += context.flowCounts[i] * abi.flows[i].bytes;
  }
  if (sent.count)
    rows.push_back({abi.mesh_names[abi.stage_axis], "send", "p2p", sent.count, sent.payload, sent.payload});
  Json traffic = Json::array();
  for (const TrafficRow &row : rows)
    traffic.push_back({{row.move == moveKindName(PCRT_CARRY) ? "link" : "axis", row.axis},
                       {"move", row.move},
                       {"phase", row.phase},
                       {"count", row.count},
                       {"payload_bytes", row.payload},
                       {"wire_bytes", row.wire}});
  return traffic;
}

/// Counts the memory that a program that generates keeps between steps: its weights by the bits of a number, as the
/// report's `weights` does, and the bytes of its caches.
static void addKept(const Program &program, int rank, Json &mine) {
  auto numbersOf = [&](const Tensor &tensor) {
    return product(blockOf(program.mesh, tensor.shape, tensor.layout, rank).size);
  };
  Json weights = Json::object();
  int64_t ofCaches = 0;
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter &parameter = program.parameters[i];
    Json &row = weights["bits_" + std::to_string(bytesOf(parameter.dtype, 8))];
    row["tensors"].push_back(parameter.name);
    auto add = [&](const char *key, const Tensor &tensor) {
      row[key] = row.value(key, int64_t(0)) + bytesOf(tensor.dtype, numbersOf(tensor));
    };
    add("bytes", parameter);
    for (const State &state : program.states)
      if (size_t(state.parameter) == i)
        add("scale_bytes", state);
  }
  for (const Cache &cache : program.caches) // tensors in an arena begin at multiples of 64 bytes
    ofCaches += (bytesOf(cache.dtype, numbersOf(cache)) + 63) / 64 * 64;
  mine["weights"] = weights;
  mine["caches"] = ofCaches;
}

/// The largest resident set of this process so far, without the memory of other ranks that it has mapped.
static int64_t peakResidentBytes(const Comm &comm) {
  int64_t kib = 0;
  if (FILE *file = fopen("/proc/self/status", "re")) {
    char line[256];
    while (fgets(line, sizeof line, file)) {
      long value;
      if (sscanf(line, "VmHWM: %ld kB", &value) == 1)
        kib = value;
    }
    fclose(file);
  }
  return kib * 1024 - comm.peerResidentBytes();
}

/// The figures `key` of the report for `rank`, which only the compiler knows.
static Json reported(const Json &report, const char *key, int rank) {
  for (const Json &entry : report.value("per_rank", Json::array()))
    for (const Json &other : entry.value("ranks", Json::array()))
      if (other == rank)
        return entry.value(key, Json::object());
  return Json::object();
}

/// The rows that the experts of this rank had, next to the report's bound; null if the program stores no rows or the
/// device does not count them.
static Json rowsOf(const pcrt_context &context) {
  const RowTally *rows = context.device->rows();
  Json figures = reported(context.program.report, "rows", context.comm.rank());
  if (!rows || !rows->products() || figures.empty())
    return nullptr;
  figures["most"] = rows->mostRows();
  figures["mean"] = double(rows->allRows()) / double(rows->products());
  if (auto rounds = figures.find("rounds"); rounds != figures.end())
    figures["rounds_with_rows"] = rounds->get<double>() * double(rows->productsWithRows()) / double(rows->products());
  return figures;
}

/// Gathers one text from each rank.
static std::vector<std::string> gatherTexts(Comm &comm, const std::string &mine) {
  int64_t length = int64_t(mine.size()), most = 0;
  std::vector<int64_t> lengths(comm.size());
  requireOk(comm, comm.allGatherBytes(&length, sizeof length, lengths.data()));
  for (int64_t other : lengths)
    most = std::max(most, other);
  std::string padded = mine, all(most * comm.size(), 0);
  padded.resize(most);
  requireOk(comm, comm.allGatherBytes(padded.data(), most, all.data()));
  std::vector<std::string> texts;
  for (int rank = 0; rank < comm.size(); ++rank)
    texts.push_back(all.substr(rank * most, lengths[rank]));
  return texts;
}

Json pcrt::makeSummary(const pcrt_context &context, const RunFigures &figures) {
  const Program &program = context.program;
  Comm &comm = context.comm;
  int64_t measured[2] = {peakResidentBytes(comm), context.allocations};
  std::vector<int64_t> all(2 * comm.size());
  requireOk(comm, comm.allGatherBytes(measured, sizeof measured, all.data()));
  // Rings of received messages lie outside of the arena.
  int64_t messages = 0;
  for (int i = 0; i < program.abi.num_flows; ++i)
    messages += program.abi.flows[i].sends ? 0 : program.abi.flows[i].slots * program.abi.flows[i].bytes;
  Json mine = {{"arena_bytes", {{"device", program.abi.arena_bytes}, {"host", messages + program.abi.host_bytes}}},
               {"traffic", trafficOf(context)}};
  if (program.abi.disk_bytes)
    mine["arena_bytes"]["disk"] = program.abi.disk_bytes;
  if (Json rows = rowsOf(context); !rows.is_null())
    mine["rows"] = rows;
  if (program.generates)
    addKept(program, comm.rank(), mine);
  std::vector<std::string> texts = gatherTexts(comm, mine.dump());
  if (comm.rank() != 0)
    return nullptr;

  Json summary = Json::object();
  for (const char *key : {"plan", "mesh", "parameters", "flops_per_step", "model_flops"})
    if (program.report.contains(key))
      summary[key] = program.report[key];
  if (!summary.contains("mesh")) {
    summary["mesh"] = Json::object();
    for (size_t axis = 0; axis < program.mesh.sizes.size(); ++axis)
      summary["mesh"][program.mesh.names[axis]] = program.mesh.sizes[axis];
  }
  summary["per_rank"] = Json::array();
  Json peaks = Json::array();
  int64_t allocations = 0;
  std::vector<bool> done(comm.size(), false);
  for (int rank = 0; rank < comm.size(); ++rank) {
    peaks.push_back(all[2 * rank]);
    allocations += all[2 * rank + 1];
    if (done[rank])
      continue;
    Json ranks = Json::array(), memory = reported(program.report, "memory", rank), shared = Json::parse(texts[rank]);
    for (int other = rank; other < comm.size(); ++other) {
      if (!done[other] && texts[rank] == texts[other] && reported(program.report, "memory", other) == memory) {
        done[other] = true;
        ranks.push_back(other);
      }
    }
    summary["per_rank"].push_back(
        {{"ranks", ranks}, {"arena_bytes", shared["arena_bytes"]}, {"memory", memory}, {"traffic", shared["traffic"]}});
    Json &entry = summary["per_rank"].back();
    for (const char *key : {"rows", "weights"})
      if (shared.contains(key))
        entry[key] = shared[key];
    if (program.generates)
      entry["memory"]["caches"] = shared["caches"];
  }
  summary["step_allocations"] = allocations;
  summary["peak_rss_bytes"] = peaks;
  summary["steps"] = figures.steps;
  summary["steps_skipped"] = figures.skipped;
  const Pool *threads = context.device->threads();
  summary["threads_per_rank"] = threads ? threads->size() : 1;
  summary["transport"] = comm.transport();
  summary["seconds_in_steps"] = figures.seconds;
  Json kinds = Json::object();
  for (const Profile::Kind &kind : context.profile.kinds())
    if (kind.calls)
      kinds[kind.name] = double(kind.nanoseconds) * 1e-9;
  summary["time_by_kind"] = kinds;
  if (!figures.bf16.empty())
    summary["bf16"] = figures.bf16;
  if (Json device = context.device->figures(); !device.is_null())
    summary["device"] = device;
  return summary;
}
