//===- Layout.h - Layouts as CUTLASS writes them --------------------------===//
// cute::Layout<Shape, Stride> maps coordinates to an index (include/cute/layout.hpp). Fragments of matrices are layouts
// from (thread, value) to an element, whose index counts rows first.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_PTX_READER_LAYOUT_H
#define PC_TEST_PTX_READER_LAYOUT_H

#include <initializer_list>
#include <vector>

namespace pc::ptx {

/// One mode, with the first dim the fastest.
struct Mode {
  std::vector<int> shape, stride;

  int operator()(int coordinate) const {
    int index = 0;
    for (size_t i = 0; i < shape.size(); ++i) {
      index += coordinate % shape[i] * stride[i];
      coordinate /= shape[i];
    }
    return index;
  }
};

/// Which element of a matrix of `rows` rows value `v` of a thread is.
struct Fragment {
  int rows;
  Mode thread, value;

  int row(int t, int v) const { return (thread(t) + value(v)) % rows; }
  int column(int t, int v) const { return (thread(t) + value(v)) / rows; }
};

} // namespace pc::ptx

#endif
