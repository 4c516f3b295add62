//===- Meeting.cpp - The server at which members of open rounds meet ------===//
// A round is over when its mean is in the log (or the log cannot be written); until then no member has changed its
// parameters. A member that is lost before this is not part of the round, and a member that is lost later is. Members
// whose shared parameters differ from the others' are refused. The mean is added up in doubles, in the order of the
// members' names, so that a replay gives the same bits.
//===----------------------------------------------------------------------===//
#include "launch/Meeting.h"
#include "base/Failure.h"
#include "base/TensorSum.h"
#include "comm/Admission.h"
#include "comm/MeetMessages.h"
#include "comm/ShmControl.h"
#include "launch/MeetingConnection.h"
#include "launch/MeetingLog.h"
#include "pcrt/outputs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <poll.h>
#include <set>
#include <utility>
#include <vector>

using namespace pcrt;
using Json = nlohmann::ordered_json;

/// A run that has joined the meeting, and the connections of its ranks.
struct pcrt::MeetingMember {
  std::vector<MeetingConnection *> ranks; ///< Null: not connected yet.
  bool isIn = false;                      ///< It takes part in the current round.
  bool hasState = false;                  ///< It has the state with which that round begins.
  int64_t begunRound = -1;                ///< The last round that it was told to begin.
  int64_t firstSample = 0;                ///< The first sample that it reads in that round.
  double arrivedAt = 0;
  bool closed = false; ///< It was told to end its round.

  bool isWhole() const { return std::count(ranks.begin(), ranks.end(), nullptr) == 0; }
  bool hasArrived() const {
    return std::all_of(ranks.begin(), ranks.end(), [](MeetingConnection *rank) { return rank && rank->arrived; });
  }
  const MeetHello &hello() const { return *ranks[0]->hello; }
};

namespace {

using Connection = MeetingConnection;
using Member = MeetingMember;
using Elements = Connection::Elements;

/// The state of a meeting. One thread serves all connections, and no connection can delay the others. A connection that
/// breaks the protocol is refused with a message.
class Meeting {
public:
  explicit Meeting(const MeetingOptions &options) : options(options) {}

  void open();
  void serve();

private:
  void take(Connection &connection, MeetKind kind, std::string_view body);
  void takeHello(Connection &connection, const MeetHello &hello);
  void takeState(Connection &connection, const MeetState &state, std::string_view elements);
  void refuse(Connection &connection, const std::string &why);
  void forgetEnded();
  bool advance();
  bool found();
  bool beginRound();
  bool admit();
  void tellBegin(const std::string &name);
  void askForState();
  void hurry();
  bool refuseOthers();
  void endRound();

  std::vector<Member *> membersIn() {
    std::vector<Member *> result;
    for (auto &[name, member] : members)
      if (member.isIn)
        result.push_back(&member);
    return result;
  }

  MeetingOptions options;
  LoggedRounds replay;
  MeetingLog log;
  std::optional<Admission> admission;
  std::vector<std::unique_ptr<Connection>> connections;
  std::map<std::string, Member> members;       ///< By name, which is the order in which they are added up.
  std::vector<std::string> joined, lost, left; ///< Changes since the last line of the log.
  bool begun = false, between = false, over = false;
  int64_t round = 0, cursor = 0; ///< `cursor` is the first sample that no member has been given.
  double beganAt = 0;
  std::string donor; ///< The member that was asked for the state; `states` holds the data that its ranks have sent.
  std::map<size_t, std::pair<MeetState, Elements>> states;
};

} // namespace

void Meeting::open() {
  if (std::string why = clashOfOutputs({{"--replay", options.replay}}, {{"--log", options.log}}); !why.empty())
    fail(PCRT_USAGE, why);
  if (!options.replay.empty())
    replay = LoggedRounds::read(options.replay);
  if (!options.log.empty())
    log.open(options.log);
  AdmissionRules rules;
  rules.name = "pc-meet";
  rules.greeting.protocol = Protocol::Members;
  if (std::string error; !findSecret(SharedBy::Members, options.listen, &rules.secret, &error))
    fail(PCRT_USAGE, error);
  rules.expects = [](const Greeting &other) { return other.rank >= 0 && other.name[0]; };
  rules.judges = [](const Greeting &) { return Verdict::Welcome; };
  Socket listener = listenAt(options.listen, options.port);
  if (listener.fd < 0)
    fail(PCRT_RESOURCE, withErrno("cannot listen on " + options.listen + ", port " + std::to_string(options.port)));
  printf("listening on port %d\n", portOf(listener));
  fflush(stdout);
  admission.emplace(std::move(listener), std::move(rules));
}

void Meeting::serve() {
  while (!over) {
    std::vector<pollfd> polls{{admission->descriptor(), POLLIN, 0}};
    for (auto &connection : connections)
      polls.push_back({connection->socket(), short(POLLIN | (connection->waitsToSend() ? POLLOUT : 0)), 0});
    poll(polls.data(), polls.size(), 50);
    for (size_t i = 1; i < polls.size(); ++i) {
      Connection &connection = *connections[i - 1];
      if (polls[i].revents & (POLLIN | POLLHUP | POLLERR))
        connection.read([&](MeetKind kind, std::string_view body) { take(connection, kind, body); });
      if (polls[i].revents & POLLOUT)
        connection.write();
      connection.ends |= !connection.hello && monotonicSeconds() - connection.since > Admission::patienceSeconds;
    }
    for (Admitted &admitted : admission->serve())
      connections.push_back(std::make_unique<Connection>(std::move(admitted)));
    forgetEnded();
    while (advance())
      forgetEnded();
  }
}

void Meeting::refuse(Connection &connection, const std::string &why) {
  fprintf(stderr, "pc-meet: %s is rejected: %s\n",
          connection.hello ? printable(connection.hello->name).c_str() : "an unknown client", why.c_str());
  connection.send(MeetKind::Refuse, why.data(), why.size());
  connection.ends = true;
}

/// The fields at the beginning of a message, which is long enough (MeetingConnection::read).
template <typename T> static T fieldsOf(std::string_view body) {
  T fields;
  memcpy(&fields, body.data(), sizeof fields);
  return fields;
}

void Meeting::take(Connection &connection, MeetKind kind, std::string_view body) {
  if (kind == MeetKind::Hello) {
    takeHello(connection, fieldsOf<MeetHello>(body));
  } else if (kind == MeetKind::Arrive && connection.member) {
    auto arrive = fieldsOf<MeetArrive>(body);
    if (arrive.round != round || connection.arrived || connection.member->begunRound != round)
      return refuse(connection, "it finished a different round than the current one");
    if (arrive.steps < 1 || arrive.steps > connection.hello->every)
      return refuse(connection,
                    "it has run " + std::to_string(arrive.steps) + " steps in this round, which is not possible");
    connection.elements = body.substr(sizeof arrive);
    connection.arrived = arrive;
    if (connection.member->hasArrived())
      connection.member->arrivedAt = monotonicSeconds();
  } else if (kind == MeetKind::State && connection.member) {
    takeState(connection, fieldsOf<MeetState>(body), body.substr(sizeof(MeetState)));
  } else if (kind == MeetKind::Leave) {
    connection.left = true;
  } else {
    connection.ends = true;
  }
}

/// Returns true if both run the same program on the same number of ranks, all of which are connected.
static bool areAlike(const Member &one, const Member &other) {
  return std::equal(one.ranks.begin(), one.ranks.end(), other.ranks.begin(), other.ranks.end(),
                    [&](Connection *mine, Connection *theirs) {
                      return mine->hello->elements == theirs->hello->elements &&
                             !strcmp(mine->hello->program, other.ranks[0]->hello->program) &&
                             !strcmp(theirs->hello->program, other.ranks[0]->hello->program);
                    });
}

/// Returns true if all numbers are in a range in which computing with them does not overflow.
static bool isSound(const MeetHello &hello) {
  auto isWithin = [](int64_t value, int64_t least, int most) { return value >= least && value >> most == 0; };
  return hello.format == meetFormat && hello.name[0] && !hello.name[sizeof hello.name - 1] &&
         !hello.program[sizeof hello.program - 1] && hello.size >= 1 && hello.size <= kMaxRanks && hello.rank >= 0 &&
         hello.rank < hello.size && isWithin(hello.every, 1, 24) && isWithin(hello.batch, 1, 24) &&
         isWithin(hello.round, 0, 48) && isWithin(hello.samples, 0, 52) && isWithin(hello.elements, 0, 37);
}

void Meeting::takeHello(Connection &connection, const MeetHello &hello) {
  if (!isSound(hello))
    return refuse(connection, "it uses a different protocol; use the same version on both sides");
  connection.hello = hello;
  if (strcmp(hello.name, connection.greeting().name) != 0 || hello.rank != connection.greeting().rank)
    return refuse(connection, "its rank differs from the one it gave before");
  Member &member = members[hello.name];
  if (member.ranks.empty())
    member.ranks.resize(size_t(hello.size));
  if (member.ranks.size() != size_t(hello.size) || member.ranks[size_t(hello.rank)])
    return refuse(connection, "another member already has this name");
  member.ranks[size_t(hello.rank)] = &connection;
  connection.member = &member;
  // Members are compared when all of their ranks are connected.
  for (auto &[name, other] : members)
    if (member.isWhole() && other.isWhole() && !areAlike(member, other))
      return refuse(connection, "its program differs from the program of " + printable(name));
}

/// Keeps a donor's part of the state. When all of its ranks have sent theirs, the members that wait get it and begin.
void Meeting::takeState(Connection &connection, const MeetState &state, std::string_view elements) {
  auto found = members.find(donor);
  if (found == members.end() || connection.member != &found->second || state.round != round ||
      elements.size() != 8 * size_t(connection.hello->elements))
    return; // the state was requested before the round ended
  states[size_t(connection.hello->rank)] = {state, std::make_shared<const std::string>(elements)};
  if (states.size() < found->second.ranks.size())
    return;
  for (auto &[name, member] : members)
    if (member.isIn && !member.hasState) {
      for (size_t rank = 0; rank < member.ranks.size(); ++rank)
        member.ranks[rank]->send(MeetKind::State, &states[rank].first, sizeof(MeetState), states[rank].second);
      member.hasState = true;
      tellBegin(name);
    }
  donor.clear();
  states.clear();
}

/// Removes connections that have ended, and the members to which they belonged.
void Meeting::forgetEnded() {
  std::set<std::string> gone;
  for (auto &connection : connections)
    if (connection->ends && connection->member)
      gone.insert(connection->hello->name);
  for (const std::string &name : gone) {
    Member &member = members[name];
    bool orderly = true;
    for (Connection *rank : member.ranks)
      if (rank) {
        orderly &= rank->left;
        rank->member = nullptr;
        rank->ends = true;
      }
    if (member.isIn && !orderly)
      fprintf(stderr, "pc-meet: round %lld: %s has left unexpectedly\n", (long long)round, printable(name).c_str());
    if (member.isIn)
      (orderly ? left : lost).push_back(name);
    if (name == donor) {
      donor.clear();
      states.clear();
    }
    members.erase(name);
  }
  for (auto &connection : connections)
    if (connection->ends)
      connection->write(); // sends the reason if that is possible without waiting
  std::erase_if(connections, [](auto &connection) { return connection->ends; });
}

/// Makes a transition of the meeting if one is due; false: it has to wait.
bool Meeting::advance() {
  if (!begun)
    return found();
  std::vector<Member *> in = membersIn();
  if (std::none_of(members.begin(), members.end(), [](auto &named) { return named.second.hasState; })) {
    over = true;
    for (auto &connection : connections)
      if (connection->member)
        refuse(*connection,
               "every member that had the current state has left; restart pc-meet, and continue from checkpoints");
    return false;
  }
  if (between)
    return beginRound();
  askForState();
  if (!std::all_of(in.begin(), in.end(), [](Member *member) { return member->hasArrived(); })) {
    hurry();
    return false;
  }
  if (refuseOthers())
    return true;
  if (int(in.size()) < options.minMembers)
    return admit();
  endRound();
  return true;
}

/// Begins the meeting if there are enough members with the same program and state.
bool Meeting::found() {
  std::vector<Member *> whole;
  int64_t most = 0;
  for (auto &[name, member] : members)
    if (member.isWhole()) {
      whole.push_back(&member);
      most = std::max(most, member.hello().round);
    }
  if (!replay.rounds.empty()) {
    auto &[first, names] = *replay.rounds.begin();
    for (auto &[name, steps] : names) {
      auto there = members.find(name);
      if (there == members.end() || !there->second.isWhole())
        return false;
    }
    most = first;
  } else if (int(whole.size()) < options.minMembers) {
    return false;
  }
  round = most;
  for (Member *member : whole)
    if (member->hello().round == most && (replay.rounds.empty() || replay.has(most, member->hello().name))) {
      member->hasState = true;
      cursor = std::max(cursor, member->hello().samples);
    }
  begun = between = true;
  return true;
}

/// Begins a round with all members that are connected or, in a replay, with the members in the log.
bool Meeting::beginRound() {
  bool replays = replay.rounds.count(round);
  int there = 0;
  for (auto &[name, member] : members)
    there += member.isWhole() && (!replays || replay.has(round, name));
  if (there < (replays ? int(replay.rounds[round].size()) : options.minMembers))
    return false;
  for (auto &[name, member] : members)
    if (replays && member.isIn && !replay.has(round, name)) {
      for (Connection *rank : member.ranks)
        refuse(*rank, "the log does not contain it any more");
      return true;
    }
  between = false;
  beganAt = monotonicSeconds();
  admit();
  return true;
}

/// Lets all connected members take part from now on. Returns whether there are new ones.
bool Meeting::admit() {
  bool any = false;
  for (auto &[name, member] : members) {
    if (!member.isWhole() || (replay.rounds.count(round) && !replay.has(round, name)))
      continue;
    bool isNew = !member.isIn;
    if (isNew) {
      any = true;
      joined.push_back(name);
    }
    member.isIn = true;
  }
  for (auto &[name, member] : members)
    if (member.isIn && member.hasState && member.begunRound != round)
      tellBegin(name);
  return any;
}

void Meeting::tellBegin(const std::string &name) {
  Member &member = members[name];
  MeetBegin begin{round, member.hello().every, cursor};
  cursor += begin.steps * member.hello().batch;
  if (auto logged = replay.rounds.find(round); logged != replay.rounds.end()) {
    begin.steps = logged->second.at(name).steps;
    begin.firstSample = logged->second.at(name).firstSample;
  }
  member.firstSample = begin.firstSample;
  member.begunRound = round;
  for (Connection *rank : member.ranks)
    rank->send(MeetKind::Begin, &begin, sizeof begin);
}

/// Asks a member that has the state to send it, if a member lacks it.
void Meeting::askForState() {
  bool isWanted = false;
  for (Member *member : membersIn())
    isWanted |= !member->hasState;
  if (!isWanted || !donor.empty())
    return;
  for (auto &[name, member] : members)
    if (member.isIn && member.hasState) {
      donor = name;
      for (Connection *rank : member.ranks)
        rank->send(MeetKind::Ask, nullptr, 0);
      return;
    }
}

/// If more than half of the members have arrived, gives the others a time limit that depends on the times of those.
/// After it, asks them to end their round, and later drops members that do not answer.
void Meeting::hurry() {
  std::vector<double> times;
  std::vector<Member *> in = membersIn(), late;
  for (Member *member : in)
    if (member->hasArrived())
      times.push_back(member->arrivedAt - beganAt);
    else
      late.push_back(member);
  if (replay.rounds.count(round) || times.empty() || 2 * times.size() < in.size())
    return;
  auto median = [](std::vector<double> of) {
    std::nth_element(of.begin(), of.begin() + long(of.size() / 2), of.end());
    return of[of.size() / 2];
  };
  double usual = median(times);
  std::vector<double> off;
  for (double time : times)
    off.push_back(std::fabs(time - usual));
  double limit = usual + std::max({5 * median(off), 0.5 * usual, options.patience});
  double since = monotonicSeconds() - beganAt;
  for (Member *member : late) {
    if (since > limit && !member->closed && member->hasState) {
      member->ranks[0]->send(MeetKind::Close, nullptr, 0);
      member->closed = true;
    }
    if (since > limit + std::max(2 * usual, 10 * options.patience))
      for (Connection *rank : member->ranks)
        refuse(*rank, "it did not arrive in time");
  }
}

/// Refuses members whose shared parameters differ from the parameters of the majority. Returns whether there were any.
bool Meeting::refuseOthers() {
  auto sums = [](Member *member) {
    std::vector<uint64_t> all;
    for (Connection *rank : member->ranks)
      all.push_back(rank->arrived->sum);
    return all;
  };
  std::vector<Member *> in = membersIn();
  auto agreeing = [&](Member *member) {
    return std::count_if(in.begin(), in.end(), [&](Member *other) { return sums(other) == sums(member); });
  };
  Member *best = *std::max_element(in.begin(), in.end(), [&](auto *a, auto *b) { return agreeing(a) < agreeing(b); });
  bool any = false;
  for (Member *member : in)
    if (sums(member) != sums(best)) {
      any = true;
      for (Connection *rank : member->ranks)
        refuse(*rank, "its shared parameters differ from the other members");
    }
  return any;
}

/// The mean of one rank's elements over the members, weighted by steps.
static std::string meanOf(const std::vector<Member *> &members, size_t rank) {
  size_t count = members[0]->ranks[rank]->elements.size() / 4;
  std::vector<double> total(count);
  double steps = 0;
  for (Member *member : members) {
    const Connection &from = *member->ranks[rank];
    auto weight = double(from.arrived->steps);
    steps += weight;
    for (size_t i = 0; i < count; ++i) {
      float element;
      memcpy(&element, from.elements.data() + 4 * i, 4);
      total[i] += weight * double(element);
    }
  }
  std::string mean(4 * count, 0);
  for (size_t i = 0; i < count; ++i) {
    auto element = float(total[i] / steps);
    memcpy(mean.data() + 4 * i, &element, 4);
  }
  return mean;
}

/// Ends a round: writes it to the log, then sends the mean to the members that have arrived.
void Meeting::endRound() {
  std::vector<Member *> in = membersIn();
  if (auto logged = replay.rounds.find(round); logged != replay.rounds.end())
    for (auto &[name, share] : logged->second)
      if (auto there = members.find(name); there == members.end() || !there->second.isIn)
        fail(PCRT_PEER_LOST, "round " + std::to_string(round) + " cannot be repeated: " + printable(name) +
                                 ", which took part in it, has left");
  std::vector<Elements> means;
  for (size_t rank = 0; rank < in[0]->ranks.size(); ++rank)
    means.push_back(std::make_shared<const std::string>(meanOf(in, rank)));
  Json line = {{"round", round}, {"members", Json::object()}};
  for (auto &[name, member] : members)
    if (member.isIn)
      line["members"][name] = {{"steps", member.ranks[0]->arrived->steps}, {"first", member.firstSample}};
  for (auto [what, names] : {std::pair("joined", &joined), std::pair("lost", &lost), std::pair("left", &left)})
    line[what] = std::exchange(*names, {});
  line["sum"] = sumOfBytes(means[0]->data(), int64_t(means[0]->size())).text();
  log.append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  for (Member *member : in) {
    for (size_t rank = 0; rank < member->ranks.size(); ++rank) {
      member->ranks[rank]->arrived.reset();
      member->ranks[rank]->send(MeetKind::Mean, nullptr, 0, means[rank]);
    }
    member->closed = false;
  }
  donor.clear();
  states.clear();
  ++round;
  between = true;
}

int pcrt::serveMeeting(const MeetingOptions &options) {
  try {
    Meeting meeting(options);
    meeting.open();
    meeting.serve();
    return PCRT_OK;
  } catch (const Failure &failure) {
    fprintf(stderr, "pc-meet: error: %s\n", failure.message.c_str());
    return failure.status;
  } catch (const std::bad_alloc &) {
    fprintf(stderr, "pc-meet: error: out of memory\n");
    return PCRT_RESOURCE;
  }
}
