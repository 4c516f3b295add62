//===- Bench.h - One rank of the measurement ------------------------------===//
// Cases are calls that all ranks make at the same time. They are timed in turns: Measure.cpp has the list of what a
// rank does alone, Moves.cpp what ranks send each other. The target makes the calls and has the clock.
//===----------------------------------------------------------------------===//
#ifndef PC_CALIBRATE_BENCH_H
#define PC_CALIBRATE_BENCH_H

#include "Measure.h"

namespace pc_calibrate {

inline Measurement named(const std::string &name, double work, bool isSmall = false) {
  return {name, work, 0, 0, isSmall};
}

/// " of 24 MiB"
inline std::string inMiB(int64_t bytes) { return " of " + std::to_string(bytes / MiB) + " MiB"; }

class Bench {
public:
  Bench(Target &target, pcrt::Comm &comm, int nodeRanks);

  Measurements run(double seconds, double noise);

private:
  struct Case {
    Measurement *result;
    std::function<void()> call;
    int64_t turns = 1;   ///< Places that its operands take in turns.
    int64_t repeats = 1; ///< Of a sample: where there is time, all places as often, since some are slower than others.
    const double *own = nullptr; ///< Seconds of this rank that count instead of all that pass.
    std::vector<double> seconds = {};
  };
  /// Places of the operands of a call, which take turns: no cache then holds those of the call before.
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
  pcrt::Group all, node, pair, across; ///< Those with one member are not measured.
  Measurements results;
  Sizes sizes;
  std::vector<Case> cases;
  double waited = 0;        ///< Seconds in which this rank met others, in the sample that is taken.
  int64_t productBytes = 0; ///< Of the operands of products, which lie first; after them those of copies and moves.
  int64_t otherBytes = 0;
};

} // namespace pc_calibrate

#endif // PC_CALIBRATE_BENCH_H
