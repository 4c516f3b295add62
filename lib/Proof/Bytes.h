//===- Bytes.h - What the bytes of a rank's arena hold ---------------------------------------===//
#ifndef PC_LIB_PROOF_BYTES_H
#define PC_LIB_PROOF_BYTES_H

#include "Fingerprint.h"
#include "Where.h"

#include "mlir/IR/Operation.h"
#include <map>

namespace pc::proof {

/// A value: which one of the one-device program, and which part of it a rank has. Microbatches are computed alike, so
/// `value` is that of any one, and `microbatch` says of which; what is made of several has its own fingerprint, in
/// which that of each counts a random number of times.
struct State {
  static constexpr int ofAny = -1, ofSeveral = -2;
  Point value;
  const Where *where = nullptr; ///< the same place is the same pointer
  int microbatch = ofAny;
  int made = -1; ///< while a failure is traced: which record of it
  uint64_t hash() const { return value.x ^ reinterpret_cast<uintptr_t>(where) * 0x9e3779b97f4a7c15ull; }
  bool operator==(const State &other) const {
    return value == other.value && where == other.where && microbatch == other.microbatch;
  }
};

/// Bytes from `begin`, before `end`.
struct Range {
  int64_t begin = -1, end = -1;
  bool overlaps(const Range &other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Range &) const = default;
};

/// A map from bytes to values. A value that has been written over in part is gone.
class Bytes {
public:
  bool hold(const Range &range, const State &state) const {
    auto it = held.find(range.begin);
    return it != held.end() && it->second.end == range.end && it->second.state == state;
  }

  /// Who has written last into the range; two nulls: nobody.
  std::pair<mlir::Operation *, mlir::Operation *> writerOf(const Range &range) const {
    auto it = held.lower_bound(range.begin);
    if (it != held.begin() && std::prev(it)->second.end > range.begin)
      --it;
    return it != held.end() && it->first < range.end ? it->second.by
                                                     : std::pair<mlir::Operation *, mlir::Operation *>();
  }

  /// `by`: the op, and the call in which it ran.
  void write(const Range &range, const State &state, std::pair<mlir::Operation *, mlir::Operation *> by = {}) {
    auto it = held.lower_bound(range.begin);
    if (it != held.begin() && std::prev(it)->second.end > range.begin)
      --it;
    while (it != held.end() && it->first < range.end)
      it = held.erase(it);
    held.emplace_hint(it, range.begin, Holder{range.end, state, by});
  }

private:
  struct Holder {
    int64_t end;
    State state;
    std::pair<mlir::Operation *, mlir::Operation *> by;
  };
  std::map<int64_t, Holder> held; ///< by first byte
};

} // namespace pc::proof

#endif
