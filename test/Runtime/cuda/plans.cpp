//===- plans.cpp - A plan of cuDNN for every attention that we compile ----===//
// usage: cuda-plans IDLE_DRIVER [ARCH...]
// Builds forward and backward plans without a device, and compares their workspaces with known sizes. Exit code 77
// (skipped) if cuDNN is not on this machine.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "cuda/PlanWithoutDevice.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace pcrt::cuda;

namespace {
struct Shape {
  const char *name;
  int64_t batch, heads, keyHeads, sequence, headDim;
};

const Shape shapes[] = {
    {"GPT-2", 16, 12, 12, 1024, 64},          {"GPT-2, tp=2", 16, 6, 6, 1024, 64},
    {"GPT-2, tp=4", 8, 3, 3, 1024, 64},       {"Llama-8B", 1, 32, 8, 8192, 128},
    {"Llama-8B, tp=8", 4, 4, 1, 4096, 128},   {"Qwen", 4, 14, 2, 2048, 64},
    {"tests, heads of 16", 2, 4, 4, 32, 16},  {"tests, grouped", 2, 4, 2, 64, 32},
    {"tests, odd length", 1, 2, 2, 1000, 64},
};

/// q, k and v are packed in one buffer (B, S, H + 2 Hk, D), and so are their gradients; o is (B, S, H, D).
pcrt_attention_desc describe(const Shape &shape, bool backward, bool packed) {
  int64_t rows = packed ? shape.heads + 2 * shape.keyHeads : shape.heads;
  int64_t keyRows = packed ? rows : shape.keyHeads, d = shape.headDim, s = shape.sequence;
  pcrt_attention_desc desc{};
  desc.name = shape.name;
  desc.backward = backward;
  desc.causal = 1;
  desc.dtype = PCRT_BF16;
  desc.batch = shape.batch;
  desc.q_heads = shape.heads;
  desc.kv_heads = shape.keyHeads;
  desc.q_length = desc.kv_length = s;
  desc.head_dim = d;
  auto fill = [&](int64_t *strides, int64_t heads) {
    strides[0] = s * heads * d;
    strides[1] = d;
    strides[2] = heads * d;
    strides[3] = 1;
  };
  for (int64_t *strides : {desc.q, desc.dq})
    fill(strides, rows);
  for (int64_t *strides : {desc.k, desc.v, desc.dk, desc.dv})
    fill(strides, keyRows);
  for (int64_t *strides : {desc.o, desc.d_o})
    fill(strides, shape.heads);
  return desc;
}
} // namespace

int main(int argc, char **argv) {
  std::vector<int> archs;
  for (int i = 2; i < argc; ++i)
    archs.push_back(atoi(argv[i]));
  for (int arch : archs) {
    std::string error;
    auto planner = PlanWithoutDevice::open(arch, argv[1], &error);
    if (!planner) {
      printf("skipped: %s\n", error.c_str());
      return 77;
    }
    printf("sm_%d, cuDNN %s\n", arch, planner->version().c_str());
    for (const Shape &shape : shapes)
      for (int variant = 0; variant < 3; ++variant) {
        bool backward = variant > 0, deterministic = variant == 2;
        if (deterministic && (shape.sequence > 1024 || shape.heads > 4))
          continue; // this variant is only for tests, because its workspace grows with the square of the length
        pcrt_attention_desc desc = describe(shape, backward, true);
        int64_t workspace = -1;
        std::string problem = planner->plan(desc, deterministic, &workspace);
        // Besides the bound tensors, a plan may use a few bytes, separate gradients of the key heads and, except on
        // Hopper, the addends of dQ.
        int64_t addends = backward ? (shape.heads != shape.keyHeads) + (arch != 90) : 0;
        int64_t most = 4096 + addends * 4 * shape.batch * shape.heads * shape.sequence * shape.headDim;
        if (deterministic) {
          int64_t rounded = (shape.sequence + 127) / 128 * 128;
          most += 2 * shape.batch * shape.heads * rounded * rounded;
        }
        if (problem.empty() && workspace > most)
          problem = "a workspace of " + std::to_string(workspace) + " bytes, expected at most " + std::to_string(most);
        printf("%s  %-20s %s%s  %lld bytes%s%s\n", problem.empty() ? "ok    " : "FAILED", shape.name,
               backward ? "backward" : "forward ", deterministic ? ", deterministic" : "", (long long)workspace,
               problem.empty() ? "" : ": ", problem.c_str());
        expect(problem.empty(), shape.name + (": " + problem));
      }
  }
  return finishChecks();
}
