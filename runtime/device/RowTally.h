//===- RowTally.h - The numbers of rows of experts ------------------------===//
// Counts, for the summary, the rows of the products with weights of experts. The rank's thread adds to it.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DEVICE_ROWTALLY_H
#define PCRT_DEVICE_ROWTALLY_H

#include <algorithm>
#include <cstdint>

namespace pcrt {

/// The rows of all such products in a run. The few products of one layer have the same rows.
class RowTally {
public:
  /// Counts a product of `rows` rows.
  void add(int64_t rows) {
    ++count;
    filled += rows > 0;
    total += rows;
    most = std::max(most, rows);
  }

  /// Return the rows of the fullest layer (or round of a layer), and the rows of all products together.
  int64_t mostRows() const { return most; }
  int64_t allRows() const { return total; }
  int64_t products() const { return count; }
  /// Returns the number of products that had any rows. In a layer that runs in rounds, only some products have rows.
  int64_t productsWithRows() const { return filled; }

private:
  int64_t count = 0, filled = 0, total = 0, most = 0;
};

} // namespace pcrt

#endif // PCRT_DEVICE_ROWTALLY_H
