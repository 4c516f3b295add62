//===- Bench.h - One rank of the measurement ------------------------------===//
// Cases are calls that all ranks make at the same time. They are timed in turns: Measure.cpp lists the calls of single
// ranks, and Moves.cpp the moves between ranks. The target makes the calls and measures the time.
//===----------------------------------------------------------------------===//
#ifndef PC_CALIBRATE_BENCH_H
#define PC_CALIBRATE_BENCH_H

#include "Measure.h"

namespace pc_calibrate {

inline Measurement named(const std::string &name, double work, bool isSmall = false) {
  return {name, work, 0, 0, isSmall};
}

/// A size for messages, such as " of 24 MiB".
inline std::string inMiB(int64_t bytes) { return " of " + std::to_string(bytes / MiB) + " MiB"; }

/// The measurement of one rank: builds the tables and cases, then times them. All ranks construct it and call run
/// together; rank 0 decides how often each case is repeated. It borrows target and communicator.
class Bench {
public:
  Bench(Target &target, pcrt::Comm &comm, int nodeRanks);

  Measurements run(double seconds, double noise);

private:
  /// A call to measure, and the samples so far.
  struct Case {
    Measurement *result;
    std::function<void()> call;
    int64_t turns = 1;   ///< The number of places between which its operands alternate.
    int64_t repeats = 1; ///< Calls of a sample; if there is time, all places equally often, because some are slower.
    const double *own = nullptr; ///< If set, these seconds of this rank are used instead of the elapsed time.
    std::vector<double> seconds = {};
  };
  /// The places of a call's operands, which take turns so that no cache holds the operands of the call before.
  struct Places {
    int64_t in, out, stride;
    int count, turn = 0;
    int64_t next() { return turn++ % count * stride; }
  };

  void addProducts(std::vector<Measurement> &to, const std::vector<Shape> &shapes, int32_t dtype);
  int addProduct(const Shape &shape, int32_t dtype, bool isBeside = false);
  void addAdding();
  void addUnaligned();
  void addMemory();
  void addMoves();
  void addGroup(GroupMoves &moves, const pcrt::Group &group, const std::string &where);
  void addMessages();
  void addBeside();
  void addMeeting();
  int addMove(pcrt_move_kind kind, int64_t bytes, const pcrt::Group &group);
  Places placesOf(pcrt_move_kind kind, int64_t bytes, int64_t members) const;
  double time(Case &one);
  double sample(Case &one);
  int64_t numberOfFirst(int64_t mine);
  void sampleAll(const std::vector<Case *> &some, int warm, int rounds);
  std::vector<Case *> noisierThan(double noise);

  Target &target;
  pcrt::Comm &comm;
  Tables tables;
  pcrt::Group all, node, pair, across; ///< Groups with one member are not measured.
  Measurements results;
  Sizes sizes;
  std::vector<Case> cases;
  double waited = 0;        ///< Seconds for which this rank has waited for others in the current sample.
  int64_t productBytes = 0; ///< Bytes of the operands of products; those of copies and moves follow.
  int64_t otherBytes = 0;
};

} // namespace pc_calibrate

#endif // PC_CALIBRATE_BENCH_H
