//===- Bytes.h - The values in the bytes of a rank's arena -----------------------------------===//
// Input: writes of values into byte ranges, in program order. Result: whether a range still holds exactly a given
// value. A range does not hold a value if it has only a part of it, or if a part was overwritten.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PROOF_BYTES_H
#define PC_LIB_PROOF_BYTES_H

#include "Fingerprint.h"
#include "Where.h"

#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

#include <map>

namespace pc::proof {

/// The state of a value: the value of the one-device program that it equals, and the part of it that a rank has. All
/// microbatches are computed in the same way, so `value` is the fingerprint for any microbatch, and `microbatch` is the
/// number of this one. A value computed from several microbatches has its own fingerprint, in which each microbatch has
/// a random factor.
struct State {
  static constexpr int ofAny = -1, ofSeveral = -2;
  Point value;
  const Where *where = nullptr; ///< equal places have the same pointer
  int microbatch = ofAny;
  Point rows = {}; ///< the mask of the rows that exist, if the value is stored by rows
  int made = -1;   ///< the number of the value's record, while a failure is traced
  uint64_t hash() const { return value.x ^ reinterpret_cast<uintptr_t>(where) * 0x9e3779b97f4a7c15ull; }
  bool operator==(const State &other) const {
    return value == other.value && where == other.where && microbatch == other.microbatch && rows == other.rows;
  }
};

/// The bytes from `begin` up to, but not including, `end`.
struct Range {
  int64_t begin = -1, end = -1;
  bool overlaps(const Range &other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Range &) const = default;
  friend llvm::hash_code hash_value(const Range &range) { return llvm::hash_combine(range.begin, range.end); }
};
} // namespace pc::proof

template <> struct llvm::DenseMapInfo<pc::proof::Range> {
  static pc::proof::Range getEmptyKey() { return {1, 0}; }
  static pc::proof::Range getTombstoneKey() { return {2, 0}; }
  static unsigned getHashValue(const pc::proof::Range &range) {
    return static_cast<unsigned>(static_cast<uint64_t>(range.begin) * 0x9e3779b97f4a7c15ull >> 32);
  }
  static bool isEqual(const pc::proof::Range &a, const pc::proof::Range &b) { return a == b; }
};

namespace pc::proof {

/// A map from bytes to values. A value that was partly overwritten is removed. Invariant: ranges in `held` do not
/// overlap, and `whole` has exactly these ranges.
class Bytes {
public:
  /// Whether exactly these bytes hold this value.
  bool hold(const Range &range, const State &state) const {
    auto it = whole.find(range);
    return it != whole.end() && it->second->state == state;
  }

  /// Returns the op that last wrote into the range, and the call in which this op ran. Returns two nulls if none did.
  std::pair<mlir::Operation *, mlir::Operation *> writerOf(const Range &range) const {
    auto it = held.lower_bound(range.begin);
    if (it != held.begin() && std::prev(it)->second.end > range.begin)
      --it;
    return it != held.end() && it->first < range.end ? it->second.by
                                                     : std::pair<mlir::Operation *, mlir::Operation *>();
  }

  /// Records a write. `by` is the op that wrote the bytes, and the call in which this op ran.
  void write(const Range &range, const State &state, std::pair<mlir::Operation *, mlir::Operation *> by = {}) {
    if (auto own = whole.find(range); own != whole.end()) {
      own->second->state = state;
      own->second->by = by;
      return;
    }
    auto it = held.lower_bound(range.begin);
    if (it != held.begin() && std::prev(it)->second.end > range.begin)
      --it;
    for (; it != held.end() && it->first < range.end; it = held.erase(it))
      whole.erase(Range{it->first, it->second.end});
    if (it == held.end() || it->first != range.begin)
      whole[range] = &held.emplace_hint(it, range.begin, Holder{range.end, state, by})->second;
  }

private:
  /// A value, the end of its bytes, and the op that wrote it.
  struct Holder {
    int64_t end;
    State state;
    std::pair<mlir::Operation *, mlir::Operation *> by;
  };
  std::map<int64_t, Holder> held;        ///< by first byte
  llvm::DenseMap<Range, Holder *> whole; ///< the same holders, by range
};

} // namespace pc::proof

#endif
