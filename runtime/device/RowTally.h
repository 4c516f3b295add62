//===- RowTally.h - How many rows experts had -----------------------------===//
#ifndef PCRT_DEVICE_ROWTALLY_H
#define PCRT_DEVICE_ROWTALLY_H

#include <algorithm>
#include <cstdint>

namespace pcrt {

/// What products with weights of experts had to do in a run: rows of a layer. A layer has a few products, of the same
/// rows each.
class RowTally {
public:
  /// A product of `rows` rows.
  void add(int64_t rows) {
    ++count;
    filled += rows > 0;
    total += rows;
    most = std::max(most, rows);
  }

  /// Rows of the fullest layer, or round of one; and those of all products together.
  int64_t mostRows() const { return most; }
  int64_t allRows() const { return total; }
  int64_t products() const { return count; }
  /// Products that had any rows: of a layer in rounds, only some have.
  int64_t productsWithRows() const { return filled; }

private:
  int64_t count = 0, filled = 0, total = 0, most = 0;
};

} // namespace pcrt

#endif // PCRT_DEVICE_ROWTALLY_H
