//===- TcpControl.cpp - Control messages between ranks --------------------===//
// A star of connections with rank 0 in its middle. A gather is collected by rank 0 and sent back to its members. All
// messages are length-prefixed, written without blocking from queues, and checked by isSound before they are used.
//===----------------------------------------------------------------------===//
#include "comm/TcpControl.h"
#include "base/Printing.h"
#include "base/SignalMask.h"
#include "comm/ShmControl.h"
#include "comm/TcpMessages.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace pcrt;

//===----------------------------------------------------------------------===//
// Start and end
//===----------------------------------------------------------------------===//

pcrt_status TcpControl::connect(const Place &place, const MeetingPoint &point, std::unique_ptr<TcpControl> *out,
                                std::string *error) {
  std::vector<Peer> peers;
  PCRT_TRY(meetOverTcp(place, point, &peers, error));
  out->reset(new TcpControl(place, std::move(peers)));
  return PCRT_OK;
}

TcpControl::TcpControl(const Place &place, std::vector<Peer> peers)
    : myRank(place.rank), numRanks(place.size), timeout(timeoutSeconds()), wakeEvent(eventfd(0, EFD_CLOEXEC)),
      answers(place.size), leftRanks(place.size) {
  current.kind = kNoGather;
  channels.resize(peers.size());
  for (size_t i = 0; i < peers.size(); ++i)
    channels[i].peer = std::move(peers[i]);
  std::string ignored;
  if (place.sharedFile >= 0)
    launcher = mapControl(place.sharedFile, &ignored);
  SignalsMasked masked;
  thread = std::thread([this] { run(); });
}

TcpControl::~TcpControl() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    Message goodbye = makeMessage(Goodbye, myRank, 0, 0, {});
    for (Channel &channel : channels)
      if (channel.peer.socket >= 0)
        channel.out.push_back(goodbye);
    stopping = true;
  }
  wake();
  thread.join();
  for (Channel &channel : channels)
    if (channel.peer.socket >= 0)
      close(channel.peer.socket);
  if (launcher)
    unmapControl(launcher);
  close(wakeEvent);
}

void TcpControl::setHooks(ControlHooks newHooks) {
  std::lock_guard<std::mutex> lock(mutex);
  hooks = std::move(newHooks);
}

void TcpControl::wake() { eventfd_write(wakeEvent, 1); }

//===----------------------------------------------------------------------===//
// The thread
//===----------------------------------------------------------------------===//

void TcpControl::run() {
  std::vector<pollfd> entries(channels.size() + 1);
  double stopBy = HUGE_VAL;
  for (;;) {
    bool pending = false;
    double wait;
    {
      std::lock_guard<std::mutex> lock(mutex);
      for (size_t i = 0; i < channels.size(); ++i) {
        bool writes = !channels[i].out.empty();
        pending |= writes;
        entries[i] = {channels[i].peer.socket, short(POLLIN | (writes ? POLLOUT : 0)), 0};
      }
      // While data are left to send, slow peers have as much time as in a move. Then peers have one second to close.
      if (stopping)
        stopBy = std::min(stopBy, monotonicSeconds() + (pending && !hasFailed ? timeout : 1));
      if (stopping && (monotonicSeconds() > stopBy || allClosed()))
        return;
      // Everything is sent. The peer closes when it has read it; closing before it does could discard data in transit.
      if (stopping && !pending)
        for (Channel &channel : channels)
          if (channel.peer.socket >= 0)
            shutdown(channel.peer.socket, SHUT_WR);
      wait = endAt ? std::max(0.0, endAt - monotonicSeconds()) : stopping ? 0.05 : 60;
    }
    entries.back() = {wakeEvent, POLLIN, 0};
    poll(entries.data(), entries.size(), int(wait * 1000) + 1);
    eventfd_t count;
    if (entries.back().revents)
      eventfd_read(wakeEvent, &count);
    std::lock_guard<std::mutex> lock(mutex);
    for (size_t i = 0; i < channels.size(); ++i) {
      Channel &channel = channels[i];
      int rank = myRank == 0 ? int(i) : 0;
      if (entries[i].revents & POLLOUT)
        writeTo(channel);
      if ((entries[i].revents & (POLLIN | POLLHUP | POLLERR)) && !readFrom(channel, rank))
        connectionClosed(channel, rank);
    }
    changed.notify_all();
    if (endAt && monotonicSeconds() >= endAt)
      endProcess();
  }
}

bool TcpControl::allClosed() const {
  return std::all_of(channels.begin(), channels.end(), [](const Channel &channel) { return channel.peer.socket < 0; });
}

/// Writes as much as the socket takes. If the peer has stopped reading, drops the rest; readFrom finds the reason after
/// the peer's last messages.
void TcpControl::writeTo(Channel &channel) {
  while (!channel.out.empty()) {
    const Bytes &bytes = *channel.out.front();
    ssize_t count = send(channel.peer.socket, bytes.data() + channel.sent, bytes.size() - channel.sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    if (count < 0) {
      channel.out.clear();
      channel.sent = 0;
      return;
    }
    channel.sent += count;
    if (channel.sent < bytes.size())
      return;
    channel.sent = 0;
    channel.out.erase(channel.out.begin());
  }
}

/// Reads and handles the messages that have come; returns false if the connection has ended.
bool TcpControl::readFrom(Channel &channel, int rank) {
  constexpr size_t step = 1 << 20;
  for (;;) {
    // Reads only the rest of this message, so that the next one begins at the start of `in`.
    size_t have = channel.in.size(), want = sizeof(Header);
    if (have >= want) {
      Header header = readAt<Header>(channel.in, 0);
      want += header.bytes;
      if (!isSound(header, rank) || (have == want && !isSound(header, channel.in))) {
        recordFailure(rank, PCRT_PEER_LOST,
                      rankName(rank) + " sent an invalid message; check that all ranks run the same program");
        return false;
      }
      if (have == want) {
        auto message = std::make_shared<const Bytes>(std::move(channel.in));
        channel.in = Bytes();
        handle(header, message);
        continue;
      }
    }
    // Memory grows with the bytes that have arrived, not with a length that was announced.
    want = std::min(want, std::max(2 * have, step));
    channel.in.resize(want);
    ssize_t count = recv(channel.peer.socket, channel.in.data() + have, want - have, MSG_DONTWAIT);
    channel.in.resize(have + std::max<ssize_t>(count, 0));
    if (count < 0)
      return errno == EAGAIN || errno == EINTR;
    if (count == 0)
      return false;
  }
}

void TcpControl::connectionClosed(Channel &channel, int rank) {
  close(channel.peer.socket);
  channel.peer.socket = -1;
  channel.out.clear();
  channel.sent = 0;
  if (leftRanks[rank] || stopping)
    return;
  recordFailure(rank, PCRT_PEER_LOST,
                rankName(rank) + " died (process " + std::to_string(channel.peer.process) + " on " + channel.peer.host +
                    ")");
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

TcpControl::Message TcpControl::makeMessage(Kind kind, int from, int group, uint64_t sequence,
                                            std::initializer_list<std::pair<const void *, int64_t>> pieces) {
  Header header{kMagic, kind, from, group, sequence, 0};
  for (const auto &[data, bytes] : pieces)
    header.bytes += bytes;
  auto message = std::make_shared<Bytes>(sizeof header + header.bytes);
  memcpy(message->data(), &header, sizeof header);
  size_t at = sizeof header;
  for (const auto &[data, bytes] : pieces) {
    if (bytes > 0)
      memcpy(message->data() + at, data, bytes);
    at += bytes;
  }
  return message;
}

void TcpControl::deliver(int rank, const Message &message) {
  if (rank == myRank)
    return handle(readAt<Header>(*message, 0), message);
  Channel &channel = channelTo(rank);
  if (channel.peer.socket >= 0)
    channel.out.push_back(message);
}

void TcpControl::handle(const Header &header, Message message) {
  switch (header.kind) {
  case Gather:
    return collect(header, message);
  case Gathered:
    if (current.kind != kNoGather && header.sequence == sequences[header.group])
      result = message;
    return;
  case Failed:
    if (header.bytes >= int64_t(sizeof(FailedHead))) {
      auto head = readAt<FailedHead>(*message, sizeof header);
      recordFailure(head.rank, pcrt_status(head.status),
                    std::string(message->begin() + sizeof header + sizeof head, message->end()));
    }
    return;
  case Goodbye:
    leftRanks[header.from] = true;
    if (myRank == 0) {
      for (int rank = 1; rank < numRanks; ++rank)
        if (!leftRanks[rank])
          deliver(rank, message);
      finishGathers();
    } else if (header.from == 0 && current.kind != kNoGather && !result) {
      recordFailure(header.from, PCRT_PEER_LOST,
                    rankName(header.from) + " ended before joining " + describeKey(current));
    }
    return;
  case Question:
    if (myRank == 0)
      for (int rank = 1; rank < numRanks; ++rank)
        if (rank != header.group)
          deliver(rank, message);
    return answer(header.group);
  case Letter:
  case Taken:
    if (header.group != myRank)
      return deliver(header.group, message);
    while (boxes.size() <= header.sequence)
      boxes.emplace_back();
    if (header.kind == Taken)
      ++boxes[header.sequence].taken;
    else
      boxes[header.sequence].letters.push_back(std::move(message));
    return;
  case Answer:
    if (header.group != myRank)
      return deliver(header.group, message);
    if (header.bytes == sizeof(Progress))
      answers[header.from] = readAt<Progress>(*message, sizeof header);
    return;
  default:
    return;
  }
}

void TcpControl::collect(const Header &header, const Message &message) {
  auto head = readAt<GatherHead>(*message, sizeof header);
  std::vector<int32_t> members(head.members);
  memcpy(members.data(), message->data() + sizeof header + sizeof head, members.size() * sizeof(int32_t));
  auto found = std::find_if(open.begin(), open.end(), [&](const Open &other) {
    return other.group == header.group && other.sequence == header.sequence && other.members == members;
  });
  if (found == open.end())
    found = open.insert(open.end(), {header.group, header.sequence, members, std::vector<Message>(members.size())});
  found->given[head.me] = message;
  finishGathers();
}

void TcpControl::finishGathers() {
  for (size_t i = 0; i < open.size();) {
    Open &gather = open[i];
    int missing = -1, given = -1;
    for (size_t member = 0; member < gather.members.size(); ++member) {
      if (gather.given[member])
        given = int(member);
      else if (missing < 0 || leftRanks[gather.members[member]])
        missing = gather.members[member];
    }
    if (missing >= 0) {
      if (leftRanks[missing])
        recordFailure(missing, PCRT_PEER_LOST,
                      rankName(missing) + " ended before joining " +
                          describeKey(readAt<GatherHead>(*gather.given[given], sizeof(Header)).key));
      ++i;
      continue;
    }
    auto bytes = std::make_shared<Bytes>(sizeof(Header));
    for (const Message &message : gather.given) {
      auto head = readAt<GatherHead>(*message, sizeof(Header));
      size_t start = sizeof(Header) + sizeof head + head.members * sizeof(int32_t);
      PartHead part{head.key, int64_t(message->size() - start)};
      const char *raw = reinterpret_cast<const char *>(&part);
      bytes->insert(bytes->end(), raw, raw + sizeof part);
      bytes->insert(bytes->end(), message->begin() + start, message->end());
    }
    Header header{kMagic, Gathered, myRank, gather.group, gather.sequence, int64_t(bytes->size() - sizeof(Header))};
    memcpy(bytes->data(), &header, sizeof header);
    std::vector<int32_t> members = std::move(gather.members);
    open.erase(open.begin() + i);
    for (int32_t member : members)
      deliver(member, bytes);
  }
}

pcrt_status TcpControl::gather(const Group &group, const MoveKey &key, const void *mine, int64_t n,
                               std::vector<Part> *parts, std::string *error) {
  parts->clear();
  if (group.size() == 1) {
    const char *data = static_cast<const char *>(mine);
    parts->push_back({key, Bytes(data, data + n)});
    return PCRT_OK;
  }
  std::unique_lock<std::mutex> lock(mutex);
  uint64_t sequence = ++sequences[group.id];
  current = key;
  result = nullptr;
  if (leftRanks[0])
    recordFailure(0, PCRT_PEER_LOST, "rank 0 ended before joining " + describeKey(key));
  GatherHead head{key, group.size(), group.me};
  Message message =
      makeMessage(Gather, myRank, group.id, sequence,
                  {{&head, sizeof head}, {group.ranks.data(), int64_t(group.size() * sizeof(int32_t))}, {mine, n}});
  if (myRank == 0)
    collect(readAt<Header>(*message, 0), message);
  else
    deliver(0, message);
  wake();
  std::vector<Progress> all;
  bool over = waitUntil(lock, [&] { return result != nullptr; }, &all);
  Message got = result;
  result = nullptr;
  if (!over) {
    std::vector<int> late;
    for (int rank : group.ranks)
      if (!all[rank].doing[0] || all[rank].gathers[group.id] < sequence)
        late.push_back(rank);
    return giveUpWaiting(lock, describeKey(key) + " of " + groupName(group), late, all, error);
  }
  current.kind = kNoGather;
  if (!got)
    return runIsOver(describeKey(key), error);
  lock.unlock();
  for (size_t at = sizeof(Header); at < got->size();) {
    auto part = readAt<PartHead>(*got, at);
    at += sizeof part;
    parts->push_back({part.key, Bytes(got->begin() + at, got->begin() + at + part.bytes)});
    at += part.bytes;
  }
  return PCRT_OK;
}

//===----------------------------------------------------------------------===//
// Failures and late ranks
//===----------------------------------------------------------------------===//

void TcpControl::recordFailure(int rank, pcrt_status status, const std::string &message) {
  if (hasFailed)
    return;
  failedRank = rank;
  failedStatus = status;
  failedMessage = message;
  hasFailed.store(true);
  FailedHead head{rank, status};
  Message text = makeMessage(Failed, myRank, 0, 0, {{&head, sizeof head}, {message.data(), int64_t(message.size())}});
  for (Channel &channel : channels)
    if (channel.peer.socket >= 0)
      channel.out.push_back(text);
  changed.notify_all();
  if (rank != myRank)
    beginEnd();
}

void TcpControl::giveUp(pcrt_status status, const std::string &message) {
  setReported(status);
  // The launcher keeps the first failure that is recorded, and learns without help how a lost rank died.
  if (launcher && status != PCRT_PEER_LOST)
    launcher->recordFailure(myRank, status, message);
  std::unique_lock<std::mutex> lock(mutex);
  recordFailure(myRank, status, message);
  wake();
  // The process may end right after this, so the messages get time to leave.
  changed.wait_for(lock, std::chrono::milliseconds(200), [&] {
    return std::all_of(channels.begin(), channels.end(), [](const Channel &channel) { return channel.out.empty(); });
  });
}

std::string TcpControl::failure() {
  std::lock_guard<std::mutex> lock(mutex);
  return failedMessage;
}

pcrt_status TcpControl::failureStatus() {
  std::lock_guard<std::mutex> lock(mutex);
  return failedStatus;
}

int TcpControl::leftRank() {
  std::lock_guard<std::mutex> lock(mutex);
  auto found = std::find(leftRanks.begin(), leftRanks.end(), true);
  return found == leftRanks.end() ? -1 : int(found - leftRanks.begin());
}

/// Schedules the end of the process, but gives the main thread a moment to notice the failure first.
void TcpControl::beginEnd() {
  endAt = monotonicSeconds() + 0.4;
  if (hooks.endWaits)
    std::thread(hooks.endWaits).detach();
  wake();
}

void TcpControl::endProcess() {
  if (stopping) {
    endAt = 0;
    return;
  }
  if (reported.load() == PCRT_OK) {
    fprintf(stderr, "error: %s: %s; the run has ended\n", rankName(myRank).c_str(), failedMessage.c_str());
    finishPrinting();
    _exit(PCRT_PEER_LOST);
  }
  // The main thread is about to end the process, but destructors and exit handlers may hang.
  if (lastMoment)
    _exit(reported.load());
  lastMoment = true;
  endAt = monotonicSeconds() + 0.3;
}

std::vector<Progress> TcpControl::askProgress(double seconds) {
  std::unique_lock<std::mutex> lock(mutex);
  answers.assign(numRanks, Progress{});
  Message question = makeMessage(Question, myRank, myRank, 0, {});
  handle(readAt<Header>(*question, 0), question); // answers for this rank; rank 0 asks the others
  if (myRank != 0)
    deliver(0, question);
  wake();
  changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
    return hasFailed ||
           std::all_of(answers.begin(), answers.end(), [](const Progress &answer) { return answer.doing[0] != 0; });
  });
  return answers;
}

void TcpControl::answer(int asker) {
  Progress progress{};
  memcpy(progress.gathers, sequences, sizeof sequences);
  std::string doing =
      current.kind != kNoGather ? "in " + describeKey(current)
      : letterFlow ? (letterFlow->sends ? "in send of " : "in receive of ") + letterFlow->describe(letterFlow->count)
      : noted[0]   ? "in " + std::string(noted)
                   : "between collectives";
  snprintf(progress.doing, sizeof progress.doing, "%s", doing.c_str());
  bool waits = waiting || current.kind != kNoGather || letterFlow;
  progress.sinceBusy = busy && !waits ? 0 : monotonicSeconds() - lastBusy;
  if (hooks.progress)
    hooks.progress(progress);
  Message message = makeMessage(Answer, myRank, asker, 0, {{&progress, sizeof progress}});
  if (asker == myRank)
    handle(readAt<Header>(*message, 0), message);
  else
    deliver(myRank == 0 ? asker : 0, message);
}

std::string TcpControl::describeLate(const std::vector<int> &late, const std::vector<Progress> &all) {
  std::lock_guard<std::mutex> lock(mutex);
  auto describe = [&](int rank) {
    if (all[rank].doing[0])
      return rankName(rank) + " (" + all[rank].doing + ")";
    // Under pc-run, what the rank noted last is in memory that it shares with the launcher.
    const char *last = launcher ? launcher->rank(rank).doing : "";
    return rankName(rank) + " (it does not answer" + (last[0] ? ", in " : "") + last + ")";
  };
  auto list = [&](const std::vector<int> &ranks) {
    std::string text;
    for (int rank : ranks)
      text += (text.empty() ? "" : ", ") + describe(rank);
    return text;
  };
  // All messages pass through rank 0. If it is silent, the state of the other ranks is unknown.
  if (!all[0].doing[0])
    return describe(0);
  std::vector<int> silent;
  for (int rank = 0; rank < numRanks; ++rank)
    if (!all[rank].doing[0] && !leftRanks[rank])
      silent.push_back(rank);
  if (silent.empty())
    return late.empty() ? "the other ranks" : list(late);
  // If this rank waits for one that answers, that one in turn waits for a silent one.
  bool direct = late.empty() || std::any_of(late.begin(), late.end(), [&](int rank) { return !all[rank].doing[0]; });
  return list(silent) + (direct ? "" : ", through " + list(late));
}

pcrt_status TcpControl::runIsOver(const std::string &what, std::string *error) {
  *error = rankName(myRank) + ": in " + what + ": " + failedMessage + "; the run has ended";
  setReported(PCRT_PEER_LOST);
  return PCRT_PEER_LOST;
}

pcrt_status TcpControl::giveUpWaiting(std::unique_lock<std::mutex> &lock, const std::string &what,
                                      const std::vector<int> &late, const std::vector<Progress> &all,
                                      std::string *error) {
  if (hasFailed) // since the last look
    return runIsOver(what, error);
  lock.unlock();
  std::string text = "no answer within " + secondsText(timeout) + " s from " + describeLate(late, all) + " in " + what +
                     "; check whether it is stopped or much slower, or raise PCRT_TIMEOUT_SECONDS";
  *error = rankName(myRank) + ": " + text;
  giveUp(PCRT_TIMEOUT, rankName(myRank) + " stopped: " + text);
  lock.lock();
  return PCRT_TIMEOUT;
}

void TcpControl::setBusy(bool isBusy) {
  std::lock_guard<std::mutex> lock(mutex);
  busy = isBusy;
  lastBusy = monotonicSeconds();
}

void TcpControl::setWaiting(bool isWaiting) {
  std::lock_guard<std::mutex> lock(mutex);
  waiting = isWaiting;
  if (busy)
    lastBusy = monotonicSeconds();
}

double TcpControl::secondsSinceBusy(const std::vector<Progress> &all) {
  double least = neverBusy;
  for (const Progress &one : all)
    if (one.doing[0]) // a rank without this text does not answer
      least = std::min(least, one.sinceBusy);
  return least;
}

void TcpControl::note(const char *doing) {
  std::lock_guard<std::mutex> lock(mutex);
  strncpy(noted, doing, sizeof noted - 1);
  if (launcher)
    strncpy(launcher->rank(myRank).doing, doing, sizeof RankBlock::doing - 1);
}
