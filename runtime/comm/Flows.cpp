//===- Flows.cpp - Messages between two ranks -----------------------------===//
// openFlows gathers the ends of all flows on all ranks and checks that each has exactly one other end, of the same
// size, slots and name. Every rank checks every flow, so that all of them fail with the same message.
//===----------------------------------------------------------------------===//
#include "comm/Comm.h"
#include "comm/MoveKey.h"

#include <algorithm>
#include <cstring>

using namespace pcrt;

std::string Flow::describe(uint64_t n) const {
  return "message " + std::to_string((n - 1) % uint64_t(messages)) + " of '" + name + "'";
}

namespace {

/// One end of a flow, as ranks send it to each other. Ends are compared byte by byte, so padding is zeroed.
struct End {
  int32_t from, to, id, slots, messages, sends;
  int64_t bytes;
  char name[96];

  bool isOtherEndOf(const End &other) const {
    return from == other.from && to == other.to && id == other.id && sends != other.sends;
  }
  std::string describe() const {
    return std::string("'") + name + "' (flow " + std::to_string(id) + " from " + rankName(from) + " to " +
           rankName(to) + ": " + std::to_string(messages) + " messages of " + std::to_string(bytes) + " bytes, " +
           std::to_string(slots) + " slots)";
  }
};

End endOf(const Flow &flow, int rank) {
  End end;
  memset(&end, 0, sizeof end);
  end.from = flow.sends ? rank : flow.peer;
  end.to = flow.sends ? flow.peer : rank;
  end.id = flow.id;
  end.slots = flow.slots;
  end.messages = flow.messages;
  end.sends = flow.sends;
  end.bytes = flow.bytes;
  strncpy(end.name, flow.name.c_str(), sizeof end.name - 1);
  return end;
}

} // namespace

pcrt_status Comm::openFlows(std::vector<Flow> wanted) {
  flows = std::move(wanted);
  int64_t count = int64_t(flows.size()), most = 0;
  std::vector<int64_t> counts(size());
  PCRT_TRY(allGatherBytes(&count, sizeof count, counts.data()));
  for (int64_t other : counts)
    most = std::max(most, other);
  if (most == 0)
    return PCRT_OK;
  std::vector<End> mine(most), all(most * size());
  memset(mine.data(), 0, mine.size() * sizeof(End));
  for (size_t i = 0; i < flows.size(); ++i)
    mine[i] = endOf(flows[i], rank());
  PCRT_TRY(allGatherBytes(mine.data(), most * int64_t(sizeof(End)), all.data()));
  auto wrong = [&](const End &end, const std::string &what) {
    return fail(PCRT_INTERNAL, end.describe() + " " + what + "; this is a bug of the compiler");
  };
  for (int owner = 0; owner < size(); ++owner) {
    for (int64_t i = 0; i < counts[owner]; ++i) {
      const End &end = all[owner * most + i];
      int peer = end.sends ? end.to : end.from;
      if (peer < 0 || peer >= size() || peer == owner || end.slots < 1 || end.messages < 1 || end.bytes < 0)
        return wrong(end, "is malformed");
      int partner = -1;
      for (int64_t j = 0; j < counts[peer]; ++j)
        if (all[peer * most + j].isOtherEndOf(end))
          partner = partner < 0 ? int(j) : int(most);
      if (partner < 0 || partner == most)
        return wrong(end, (partner < 0 ? "has no other end on " : "has several other ends on ") + rankName(peer));
      End other = all[peer * most + partner];
      other.sends = end.sends;
      if (memcmp(&other, &end, sizeof end) != 0)
        return wrong(end, "is " + other.describe() + " on " + rankName(peer));
      if (owner == rank())
        flows[i].partner = partner;
    }
  }
  return prepareFlows();
}

pcrt_status Comm::send(int flow, const void *data) {
  if (flow < 0 || flow >= int(flows.size()) || !flows[flow].sends)
    return fail(PCRT_INTERNAL,
                rankName(rank()) + " cannot send in flow " + std::to_string(flow) + "; this is a bug of the compiler");
  ++flows[flow].count;
  return put(flows[flow], flow, data);
}

pcrt_status Comm::receive(int flow, void *data) {
  if (flow < 0 || flow >= int(flows.size()) || flows[flow].sends)
    return fail(PCRT_INTERNAL, rankName(rank()) + " cannot receive from flow " + std::to_string(flow) +
                                   "; this is a bug of the compiler");
  ++flows[flow].count;
  return take(flows[flow], flow, data);
}
