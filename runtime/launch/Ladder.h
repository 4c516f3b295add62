//===- Ladder.h - Programs of one training for fewer and fewer ranks ------===//
// If a machine is gone for good, fewer ranks are left. Another executable of the same model, planned for that many
// ranks, continues from the newest checkpoint, which any plan can load.
//===----------------------------------------------------------------------===//
#ifndef PCRT_LAUNCH_LADDER_H
#define PCRT_LAUNCH_LADDER_H

#include <string>
#include <vector>

namespace pcrt {

/// An executable and the number of ranks that it needs.
struct Rung {
  std::string program;
  int ranks = 0;
};

/// The executables in the order in which they are tried.
class Ladder {
public:
  /// Asks every program for --info=json. Throws PCRT_USAGE unless all train the same model on the same samples by the
  /// same optimizer, each on fewer ranks than the one before it.
  explicit Ladder(const std::vector<std::string> &programs);

  /// The first program that needs at most `ranks`, or null.
  const Rung *firstFor(int ranks) const;

private:
  std::vector<Rung> rungs;
};

} // namespace pcrt

#endif // PCRT_LAUNCH_LADDER_H
