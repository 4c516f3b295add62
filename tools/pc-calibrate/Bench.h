//===- Bench.h - one rank of the measurement -------------------------------===//
//
// Cases are calls that all ranks make at the same time. They are timed in
// turns: Measure.cpp has the clock and what a rank does alone, Moves.cpp what
// ranks send each other.
//
//===----------------------------------------------------------------------===//
#ifndef PC_CALIBRATE_BENCH_H
#define PC_CALIBRATE_BENCH_H

#include "Measure.h"
#include "cpu/Gemm.h"

#include <functional>

namespace pc_calibrate {

constexpr int64_t MiB = int64_t(1) << 20;

inline Measurement named(const std::string &name, double work, bool isSmall = false) {
  return {name, work, 0, 0, isSmall};
}

class Bench {
public:
  Bench(pcrt::Comm &comm, int nodeRanks);

  Measurements run(double seconds, double noise);

private:
  struct Case {
    Measurement *result;
    std::function<void()> call;
    int64_t repeats = 1;
    std::vector<double> seconds = {};
  };

  void addProducts(std::vector<Measurement> &to, size_t count, int32_t dtype, std::unique_ptr<pcrt::Gemms> &gemms);
  void addMemory();
  void addMoves();
  void addGroup(GroupMoves &moves, const pcrt::Group &group, const std::string &where);
  void addMessages();
  void addBeside();
  pcrt::ParallelFor workers();
  double time(const Case &one);
  int64_t numberOfFirst(int64_t mine);
  void sampleAll(int warm, int rounds);

  pcrt::Comm &comm;
  pcrt::Pool pool;
  pcrt::Group all, node, pair, across; ///< Those with one member are not measured.
  Measurements results;
  std::vector<Case> cases;
  std::vector<pcrt_gemm_desc> descs, bf16Descs;
  std::unique_ptr<pcrt::Gemms> gemms, bf16Gemms;
  char *arena = nullptr;
  std::vector<float> from, to;
  std::vector<char> message;
  int64_t largeBytes = 24 * MiB; ///< Of a large move.
  const char *problem = nullptr;
};

} // namespace pc_calibrate

#endif // PC_CALIBRATE_BENCH_H
