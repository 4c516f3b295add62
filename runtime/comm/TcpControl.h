//===- TcpControl.h - Control messages between ranks ----------------------===//
// Every rank holds one connection to rank 0. Rank 0 forwards messages: small data that the members of a group gather,
// failures, and questions about progress. One thread per rank handles all messages, so a dead rank is noticed and named
// while others compute or wait for a device.
//===----------------------------------------------------------------------===//
#ifndef PCRT_COMM_TCPCONTROL_H
#define PCRT_COMM_TCPCONTROL_H

#include "comm/MoveKey.h"
#include "comm/Patience.h"
#include "comm/TcpMeeting.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace pcrt {

struct ControlBlock;

/// The progress of a rank, for messages about late ranks.
struct Progress {
  uint64_t gathers[kMaxGroups]; ///< The number of gathers that it has begun, per group.
  uint64_t counter;             ///< The count that ControlHooks::progress fills in.
  double sinceBusy;             ///< Seconds since it was busy (Comm::Busy); 0: it is busy.
  char doing[192];              ///< "in barrier", "between moves".
};

/// Functions that the user of TcpControl provides.
struct ControlHooks {
  /// Fills in `counter` and `doing`. Called under the lock of TcpControl, on either of its threads.
  std::function<void(Progress &)> progress;
  /// Ends the waits of the main thread, because the run has failed. Called on a separate thread. It may block.
  std::function<void()> endWaits;
};

/// The control plane of one rank. It owns its connections and the thread that serves them. The main thread calls the
/// public methods; one mutex guards the state that both threads use. A rank keeps the first failure that reaches it and
/// sends it to all. The failure ends the rank's waits, and ends its process 0.4 s later if the main thread has not
/// noticed.
class TcpControl {
public:
  /// The data of one member of a gather.
  struct Part {
    MoveKey key;
    std::vector<char> data;
  };

  /// Connects to the other ranks and starts the thread.
  static pcrt_status connect(const Place &place, const MeetingPoint &point, std::unique_ptr<TcpControl> *out,
                             std::string *error);
  /// Tells the others that this rank has ended in an orderly way.
  ~TcpControl();

  int rank() const { return myRank; }
  int size() const { return numRanks; }
  void setHooks(ControlHooks newHooks);

  /// Gives `n` bytes to the members of `group` and gets their data, in coordinate order. Sizes and keys may differ; the
  /// caller compares them. After PCRT_TIMEOUT or PCRT_PEER_LOST, `error` is the message, and all ranks know.
  pcrt_status gather(const Group &group, const MoveKey &key, const void *mine, int64_t n, std::vector<Part> *parts,
                     std::string *error);

  /// These functions pass messages of flows (Comm.h) through rank 0. `index` is the number of the flow. Errors are the
  /// same as for gather.
  void openFlows(size_t count);
  pcrt_status sendLetter(const Flow &flow, int index, const void *data, std::string *error);
  pcrt_status takeLetter(const Flow &flow, int index, void *data, std::string *error);
  /// Tells the other ranks where this rank is in its step. They use this in their messages.
  void note(const char *doing);

  /// Record whether this rank is busy (Comm::Busy), and whether it waits for other ranks in another way than through
  /// this object.
  void setBusy(bool isBusy);
  void setWaiting(bool isWaiting);
  /// Seconds since any rank was busy, according to the answers of askProgress.
  static double secondsSinceBusy(const std::vector<Progress> &all);

  /// Tells all ranks that this one has failed, unless an earlier failure is known.
  void giveUp(pcrt_status status, const std::string &message);

  /// The first failure of the run, as a message; empty: none.
  std::string failure();
  /// The status of the first failure.
  pcrt_status failureStatus();
  bool failed() const { return hasFailed.load(); }

  /// A rank that ended in an orderly way while this one runs on; -1: none.
  int leftRank();

  /// Says that the main thread knows about the failure and is about to end with `status`.
  void setReported(pcrt_status status) { reported.store(status); }

  /// Asks all ranks for their progress. A rank that does not answer within `seconds` has an empty `doing`.
  std::vector<Progress> askProgress(double seconds = 1);

  /// Names the ranks to blame if this one has waited too long for `late`: "rank 2 (it does not answer at all)". Some of
  /// the late ranks may only wait for others themselves. `all` is the result of askProgress.
  std::string describeLate(const std::vector<int> &late, const std::vector<Progress> &all);

private:
  static constexpr uint32_t kMagic = 0x70637443;
  static constexpr int32_t kNoGather = -2; ///< The kind of `current` if there is no gather.
  /// The beginning of every message on a control connection.
  struct Header {
    uint32_t magic, kind;
    int32_t from, group; ///< `group`: of a gather; or the rank that asks; or the rank to which a letter goes.
    uint64_t sequence;   ///< Number of a gather in its group; of a letter, the number of the flow at its receiver.
    int64_t bytes;
  };
  enum Kind : uint32_t { Gather, Gathered, Failed, Goodbye, Question, Answer, Letter, Taken };
  using Bytes = std::vector<char>;
  using Message = std::shared_ptr<const Bytes>;

  /// One connection.
  struct Channel {
    Peer peer;
    Bytes in;
    std::vector<Message> out;
    size_t sent = 0; ///< The bytes of the first message in `out` that were sent.
  };
  /// A gather that rank 0 collects.
  struct Open {
    int32_t group;
    uint64_t sequence;
    std::vector<int32_t> members;
    std::vector<Message> given; ///< The data of each member; null: not received yet.
  };

  TcpControl(const Place &place, std::vector<Peer> peers);

  static Message makeMessage(Kind kind, int from, int group, uint64_t sequence,
                             std::initializer_list<std::pair<const void *, int64_t>> pieces);
  void run();
  void wake();
  bool readFrom(Channel &channel, int rank);
  /// Whether a header that `sender` sent can be used, and in the second function, the message that follows it
  /// (TcpMessages.cpp).
  bool isSound(const Header &header, int sender) const;
  bool isSound(const Header &header, const Bytes &message) const;
  void writeTo(Channel &channel);
  bool allClosed() const;
  void connectionClosed(Channel &channel, int rank);
  void handle(const Header &header, Message message);
  /// Sends `message` to `rank` by its connection, or handles it here if `rank` is this rank.
  void deliver(int rank, const Message &message);
  void collect(const Header &header, const Message &message);
  void finishGathers();
  void recordFailure(int rank, pcrt_status status, const std::string &message);
  void answer(int asker);
  void beginEnd();
  void endProcess();
  /// Returns the status of a wait for `what` in a run that has failed, and sets `error`. The caller holds the lock.
  pcrt_status runIsOver(const std::string &what, std::string *error);
  /// Waits until `reached` returns true or the run fails. The caller holds the lock. If the time is up, returns false,
  /// and `all` then has the ranks' progress.
  template <typename F>
  bool waitUntil(std::unique_lock<std::mutex> &lock, const F &reached, std::vector<Progress> *all);
  /// Fails the run because a wait for `what` took too long. `late` are the members of the group that have not come, or
  /// the other end of a flow. Returns PCRT_TIMEOUT.
  pcrt_status giveUpWaiting(std::unique_lock<std::mutex> &lock, const std::string &what, const std::vector<int> &late,
                            const std::vector<Progress> &all, std::string *error);
  /// Waits until `reached()` is true: `flow` has a message to receive, or room for one to send. The caller holds the
  /// lock.
  pcrt_status waitForLetter(std::unique_lock<std::mutex> &lock, const Flow &flow, const std::function<bool()> &reached,
                            std::string *error);
  Channel &channelTo(int rank) { return channels[myRank == 0 ? rank : 0]; }

  int myRank, numRanks;
  double timeout;
  std::vector<Channel> channels; ///< On rank 0, one for each rank; elsewhere one, to rank 0.
  int wakeEvent;

  std::mutex mutex; ///< Guards the members below and the channels' queues.
  std::condition_variable changed;
  ControlHooks hooks;
  uint64_t sequences[kMaxGroups] = {};
  MoveKey current{}; ///< The gather in which the main thread waits; its kind is kNoGather if there is none.
  std::vector<Open> open;
  Message result; ///< The result of the current gather.
  std::vector<Progress> answers;
  /// The state of a flow. At the receiver, it has the letters that have arrived; at the sender, the number of letters
  /// that the receiver has taken.
  struct Box {
    std::deque<Message> letters;
    uint64_t taken = 0;
  };
  std::deque<Box> boxes;            ///< By flow.
  const Flow *letterFlow = nullptr; ///< The flow in which the main thread waits.
  char noted[96] = "";
  bool busy = false, waiting = false; ///< State of the main thread.
  double lastBusy = -neverBusy;       ///< The last time at which it was busy.
  ControlBlock *launcher = nullptr;   ///< The memory that pc-run shares with the ranks that it started, or null.
  std::vector<bool> leftRanks;
  int failedRank = -1;
  pcrt_status failedStatus = PCRT_OK;
  std::string failedMessage;
  bool stopping = false;

  std::atomic<bool> hasFailed{false};
  std::atomic<int> reported{PCRT_OK};
  double endAt = 0;        ///< The time at which to end the process; 0: not planned.
  bool lastMoment = false; ///< The end was postponed once.
  std::thread thread;
};

template <typename F>
bool TcpControl::waitUntil(std::unique_lock<std::mutex> &lock, const F &reached, std::vector<Progress> *all) {
  if (busy)
    lastBusy = monotonicSeconds();
  Patience patience(timeout);
  for (;;) {
    if (changed.wait_for(lock, std::chrono::duration<double>(patience.sleep()), [&] { return reached() || hasFailed; }))
      return true;
    if (!patience.isOver())
      continue;
    lock.unlock();
    *all = askProgress();
    lock.lock();
    if (!reached() && !hasFailed && !patience.isExtended(secondsSinceBusy(*all)))
      return false;
  }
}

} // namespace pcrt

#endif // PCRT_COMM_TCPCONTROL_H
