//===- Blocks.cu - Kernels between moves by NCCL --------------------------===//
// Swaps the order of blocks before and after a move whose dim is not outermost, and notes for the host how far a stream
// has come. The build makes PTX of it.
//===----------------------------------------------------------------------===//
#define GLOBAL extern "C" __attribute__((global)) void
#define DEVICE static inline __attribute__((device))

using int64 = long long;

struct alignas(16) Sixteen {
  unsigned words[4];
};

/// to[column][row] = from[row][column], blocks of `width` units.
template <typename Unit> DEVICE void swapBlocks(const Unit *from, Unit *to, int64 rows, int64 columns, int64 width) {
  int64 count = rows * columns * width;
  int64 step = int64(__nvvm_read_ptx_sreg_nctaid_x()) * __nvvm_read_ptx_sreg_ntid_x();
  int64 at = int64(__nvvm_read_ptx_sreg_ctaid_x()) * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  for (; at < count; at += step) {
    int64 block = at / width, column = block / rows, row = block - column * rows;
    to[at] = from[(row * columns + column) * width + (at - block * width)];
  }
}

GLOBAL swap_1(const char *from, char *to, int64 rows, int64 columns, int64 width) {
  swapBlocks(from, to, rows, columns, width);
}
GLOBAL swap_2(const unsigned short *from, unsigned short *to, int64 rows, int64 columns, int64 width) {
  swapBlocks(from, to, rows, columns, width);
}
GLOBAL swap_4(const unsigned *from, unsigned *to, int64 rows, int64 columns, int64 width) {
  swapBlocks(from, to, rows, columns, width);
}
GLOBAL swap_16(const Sixteen *from, Sixteen *to, int64 rows, int64 columns, int64 width) {
  swapBlocks(from, to, rows, columns, width);
}

GLOBAL note(volatile unsigned *to, unsigned value) { *to = value; }
