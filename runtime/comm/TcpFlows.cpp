//===- TcpFlows.cpp - Messages of flows, through rank 0 -------------------===//
// A letter is one message of a flow. Rank 0 forwards it to the receiver's box. The receiver answers each letter that it
// takes. A sender waits while all slots of the flow hold letters that are not taken.
//===----------------------------------------------------------------------===//
#include "comm/TcpControl.h"

#include <cstring>

using namespace pcrt;

void TcpControl::openFlows(size_t count) {
  std::lock_guard<std::mutex> lock(mutex);
  while (boxes.size() < count)
    boxes.emplace_back();
}

pcrt_status TcpControl::waitForLetter(std::unique_lock<std::mutex> &lock, const Flow &flow,
                                      const std::function<bool()> &reached, std::string *error) {
  auto what = [&] { return (flow.sends ? "send of " : "receive of ") + flow.describe(flow.count); };
  letterFlow = &flow;
  std::vector<Progress> all;
  bool over = waitUntil(lock, [&] { return reached() || leftRanks[flow.peer] || leftRanks[0]; }, &all);
  if (reached()) {
    letterFlow = nullptr;
    return PCRT_OK;
  }
  if (over && !hasFailed) {
    int left = leftRanks[flow.peer] ? flow.peer : 0;
    recordFailure(left, PCRT_PEER_LOST, rankName(left) + " ended before joining " + what());
  }
  if (over)
    return runIsOver(what(), error);
  return giveUpWaiting(lock, what(), {flow.peer}, all, error);
}

pcrt_status TcpControl::sendLetter(const Flow &flow, int index, const void *data, std::string *error) {
  std::unique_lock<std::mutex> lock(mutex);
  auto hasSpace = [&] { return flow.count <= boxes[index].taken + uint64_t(flow.slots); };
  PCRT_TRY(waitForLetter(lock, flow, hasSpace, error));
  deliver(flow.peer, makeMessage(Letter, myRank, flow.peer, uint64_t(flow.partner), {{data, flow.bytes}}));
  wake();
  return PCRT_OK;
}

pcrt_status TcpControl::takeLetter(const Flow &flow, int index, void *data, std::string *error) {
  std::unique_lock<std::mutex> lock(mutex);
  Box &box = boxes[index];
  if (pcrt_status status = waitForLetter(lock, flow, [&] { return !box.letters.empty(); }, error); status != PCRT_OK)
    return status;
  Message letter = std::move(box.letters.front());
  box.letters.pop_front();
  if (letter->size() != sizeof(Header) + size_t(flow.bytes)) {
    lock.unlock();
    *error = rankName(myRank) + ": " + rankName(flow.peer) + " sent " +
             std::to_string(letter->size() - sizeof(Header)) + " bytes instead of " + std::to_string(flow.bytes) +
             " for " + flow.describe(flow.count) + "; all ranks must run the same program";
    giveUp(PCRT_INTERNAL, *error);
    return PCRT_INTERNAL;
  }
  deliver(flow.peer, makeMessage(Taken, myRank, flow.peer, uint64_t(flow.partner), {}));
  wake();
  memcpy(data, letter->data() + sizeof(Header), flow.bytes);
  return PCRT_OK;
}
