//===- Rows.cu - The kernel that counts rows ------------------------------===//
// A thread counts the tokens of one chunk that choose one expert. The build makes PTX of it.
//===----------------------------------------------------------------------===//
using int64 = long long;

/// mask[block][token][expert], counts[block][chunk][expert].
extern "C" __attribute__((global)) void count_rows(const float *mask, int *counts, int64 blocks, int64 tokens,
                                                   int64 experts, int64 tokensOfChunk) {
  int64 chunks = (tokens + tokensOfChunk - 1) / tokensOfChunk, all = blocks * chunks * experts;
  int64 step = int64(__nvvm_read_ptx_sreg_nctaid_x()) * __nvvm_read_ptx_sreg_ntid_x();
  int64 at = int64(__nvvm_read_ptx_sreg_ctaid_x()) * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  for (; at < all; at += step) {
    int64 expert = at % experts, chunk = at / experts % chunks, block = at / experts / chunks;
    int64 end = (chunk + 1) * tokensOfChunk < tokens ? (chunk + 1) * tokensOfChunk : tokens;
    int count = 0;
    for (int64 token = chunk * tokensOfChunk; token < end; ++token)
      count += mask[(block * tokens + token) * experts + expert] != 0;
    counts[at] = count;
  }
}
