//===- flips.cpp - A checkpoint with one bit flipped ----------------------===//
// usage: core-flips DIRECTORY   (it is made anew)
// Saves a checkpoint of the program, then loads it with every bit of every file flipped in turn (PC_LONG=1), or with
// some of them: the load must fail, or give the values that were saved.
//===----------------------------------------------------------------------===//
#include "base/Failure.h"
#include "checkpoint/Checkpoint.h"
#include "cpu/CpuDevice.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>

using namespace pcrt;
namespace fs = std::filesystem;

namespace {

/// A program's arena, and all that is needed to save and load it on one rank.
struct Bench {
  Programs programs{pc_program};
  const Program &program = programs.first();
  std::unique_ptr<Comm> comm;
  std::optional<pcrt_context> context;
  std::unique_ptr<Device> device = std::make_unique<CpuDevice>(program, Bf16Choice(), 1);
  std::span<char> memory;

  Bench() {
    std::string error;
    if (connect(&comm, &error) != PCRT_OK)
      fail(PCRT_INTERNAL, error);
    context.emplace(program, *comm);
    device->prepare(*context);
    memory = {device->onHost(0), size_t(pc_program.arena_bytes)};
  }
};

/// The result of loading: the trajectory and the arena.
struct Loaded {
  std::string trajectory;
  std::vector<char> arena;
  bool operator==(const Loaded &other) const = default;
};

} // namespace

static Loaded load(Bench &bench, const std::string &directory) {
  std::fill(bench.memory.begin(), bench.memory.end(), 0);
  Trajectory trajectory = Trajectory::read(directory);
  loadCheckpoint(directory, trajectory, bench.program, *bench.device, *bench.device->threads(), *bench.comm);
  return {trajectory.text(), {bench.memory.begin(), bench.memory.end()}};
}

static std::string readFile(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int main(int argc, char **argv) {
  if (argc != 2)
    return 2;
  std::string directory = argv[1];
  fs::remove_all(directory);
  Bench bench;
  for (size_t i = 0; i < bench.memory.size() / 4; ++i)
    reinterpret_cast<float *>(bench.memory.data())[i] = float(i % 1000) * 0.37f - 100;
  Trajectory trajectory;
  trajectory.step = 3, trajectory.samples = 24, trajectory.batch = trajectory.sequence = 8;
  trajectory.optimizer = "adamw";
  trajectory.flags = {{"lr", "0.001"}, {"seed", "7"}};
  trajectory.data = {{"tokens.bin", 500, {1000, "0123456789abcdef"}}};
  CheckpointWriter(directory, {}, *bench.comm).write(bench.program, trajectory, *bench.device);
  Loaded intact = load(bench, directory);

  const int64_t stride = getenv("PC_LONG") ? 1 : 41;
  int64_t bit = 0, refused = 0, same = 0, wrong = 0;
  for (const fs::directory_entry &entry : fs::directory_iterator(directory)) {
    std::string whole = readFile(entry.path());
    for (int64_t at = 0; at < int64_t(whole.size()) * 8; ++at, ++bit) {
      if (bit % stride)
        continue;
      std::string flipped = whole;
      flipped[at / 8] = char(flipped[at / 8] ^ 1 << at % 8);
      std::ofstream(entry.path(), std::ios::binary) << flipped;
      try {
        bool equal = load(bench, directory) == intact;
        same += equal;
        wrong += !equal;
        if (!equal)
          printf("FAILED: bit %lld of %s is loaded\n", (long long)at, entry.path().c_str());
      } catch (const Failure &failure) {
        ++refused;
        if (failure.status != PCRT_BAD_DATA) {
          ++wrong;
          printf("FAILED: bit %lld of %s: status %d: %s\n", (long long)at, entry.path().c_str(), failure.status,
                 failure.message.c_str());
        }
      }
    }
    std::ofstream(entry.path(), std::ios::binary) << whole;
  }
  printf("%lld of %lld bits refused, %lld without effect, %lld wrong\n", (long long)refused,
         (long long)refused + (long long)same, (long long)same, (long long)wrong);
  return wrong != 0 || refused == 0;
}
