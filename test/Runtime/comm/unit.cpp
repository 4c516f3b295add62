//===- unit.cpp - Parts of the communication layer that need no peer ------===//
// Also runs under pc-run on several ranks for properties that only a run has: no allocation inside moves, and which
// resident memory belongs to peers.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "comm/Codes.h"
#include "comm/Comm.h"
#include "comm/Environment.h"
#include "comm/FreeMemory.h"
#include "comm/MoveKey.h"
#include "comm/Secret.h"
#include "comm/TcpControl.h"
#include "comm/VirtualComm.h"
#include "launch/Launch.h"
#include "pcrt/codes.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <random>
#include <thread>
#include <unistd.h>

using namespace pcrt;

static int64_t allocations = 0;
#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if !__has_feature(thread_sanitizer) // which brings its own
void *operator new(size_t bytes) {
  ++allocations;
  if (void *at = malloc(bytes ? bytes : 1))
    return at;
  throw std::bad_alloc();
}
void operator delete(void *at) noexcept { free(at); }
void operator delete(void *at, size_t) noexcept { free(at); }
#endif

static void testCores() {
  using Cores = std::vector<int>;
  CHECK(coresOfRank({4, 5, 6, 7}, 0, 1) == (Cores{4, 5, 6, 7}));
  CHECK(coresOfRank({4, 5, 6, 7}, 1, 2) == (Cores{6, 7}));
  CHECK(coresOfRank({0, 1, 2}, 0, 2) == (Cores{0}) && coresOfRank({0, 1, 2}, 1, 2) == (Cores{1, 2}));
  CHECK(coresOfRank({0, 1}, 1, 2) == (Cores{1}));
  CHECK(coresOfRank({0, 1}, 3, 4) == (Cores{1}) && coresOfRank({0, 1}, 2, 4) == (Cores{0}));
}

/// A fake machine: its files are in a separate folder.
struct FakeMachine {
  std::string root;
  FakeMachine() {
    char name[] = "/tmp/pc-unit-XXXXXX";
    root = mkdtemp(name);
    write("/proc/meminfo", "MemTotal:       26500000 kB\nMemFree:         9000000 kB\nMemAvailable:   20000000 kB\n");
  }
  ~FakeMachine() { std::filesystem::remove_all(root); }
  void write(const std::string &path, const std::string &text) const {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
};

static void testFreeMemory() {
  constexpr double gib = double(1 << 30), kib = 1024;
  FakeMachine machine;
  FreeMemory free = freeMemory(machine.root); // no control groups
  CHECK(free.available == 20000000 * kib && free.total == 26500000 * kib && !free.isLimited);

  // In version 2, the group that contains this one has the limit. Memory that the kernel can drop counts as free.
  machine.write("/proc/self/cgroup", "0::/jobs/7\n");
  machine.write("/sys/fs/cgroup/jobs/7/memory.max", "max\n");
  machine.write("/sys/fs/cgroup/jobs/7/memory.current", "1000\n");
  machine.write("/sys/fs/cgroup/jobs/memory.max", std::to_string(int64_t(8) << 30));
  machine.write("/sys/fs/cgroup/jobs/memory.current", std::to_string(int64_t(5) << 30));
  machine.write("/sys/fs/cgroup/jobs/memory.stat",
                "anon 3\nfile 9\ninactive_anon 77\ninactive_file 1073741824\nactive_file 1073741824\n");
  free = freeMemory(machine.root);
  CHECK(free.available == 5 * gib && free.total == 8 * gib && free.isLimited);
  // The use is above a limit that was set later.
  machine.write("/sys/fs/cgroup/jobs/memory.current", std::to_string(int64_t(11) << 30));
  CHECK(freeMemory(machine.root).available == 0);

  // In a container the path is that on the machine, but only the files of the mount are visible.
  machine.write("/proc/self/cgroup", "0::/docker/abc\n");
  machine.write("/sys/fs/cgroup/memory.max", std::to_string(int64_t(4) << 30));
  machine.write("/sys/fs/cgroup/memory.current", std::to_string(int64_t(1) << 30));
  CHECK(freeMemory(machine.root).available == 3 * gib);

  // Version 1 has a number that means no limit. A limit above the machine's free memory has no effect.
  FakeMachine older;
  older.write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/job\n0::/\n");
  older.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  older.write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "9000525824\n");
  CHECK(!freeMemory(older.root).isLimited);
  older.write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(int64_t(2) << 30));
  older.write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(int64_t(1) << 30));
  older.write("/sys/fs/cgroup/memory/job/memory.stat", "inactive_file 5\ntotal_inactive_file 536870912\n");
  free = freeMemory(older.root);
  CHECK(free.available == 1.5 * gib && free.total == 2 * gib && free.isLimited);
}

static void testLackOfMemory() {
  constexpr double gib = double(1 << 30);
  auto wish = [&](const char *host, double wanted, double available, int isLimited = 0) {
    MemoryWish wish;
    snprintf(wish.machine, sizeof wish.machine, "%s", host);
    wish.bytes = wanted * gib;
    wish.free = {available * gib, 26 * gib, isLimited};
    return wish;
  };
  CHECK(lackOfMemory({wish("a", 11.9, 24), wish("b", 20, 24), wish("a", 11.9, 23.8)}, 0).empty());
  // The ranks of one host are added up, and compared with the free memory that the last of them found.
  std::string text = lackOfMemory({wish("a", 11.9, 24), wish("b", 20, 24), wish("a", 11.9, 23.7)}, 2);
  CHECK(text.starts_with(
      "the arenas of the ranks on this machine need 23.80 GiB, but only 23.70 GiB are available of its "
      "26.00 GiB; end other programs"));
  text = lackOfMemory({wish("a", 11.9, 24), wish("b", 25, 24, 1)}, 0);
  CHECK(text.starts_with("the arenas of the ranks on machine b need 25.00 GiB, but only 24.00 GiB are available of its "
                         "container's limit of 26.00 GiB"));
}

/// Reads a Place from exactly these variables.
static bool readFrom(std::initializer_list<const char *> variables, Place *place, std::string *error) {
  clearenv();
  for (const char *variable : variables)
    putenv(const_cast<char *>(variable));
  *place = Place();
  return readPlace(place, error);
}

static void testEnvironments() {
  Place place;
  std::string error;
  CHECK(readFrom({}, &place, &error) && place.launcher == "none" && place.size == 1 && place.transport == "self");
  CHECK(readFrom({"PCRT_RANK=1", "PCRT_SIZE=2", "PCRT_SHM_FD=5"}, &place, &error) && place.launcher == "pc-run" &&
        place.rank == 1 && place.sharedFile == 5 && place.transport == "shm");
  CHECK(readFrom({"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1"},
                 &place, &error) &&
        place.launcher == "torchrun" && place.localRank == 1 && place.transport == "mpi");
  CHECK(readFrom({"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1"}, &place, &error) &&
        place.transport == "shm" && place.run.rfind("h:1", 0) == 0);
  CHECK(!readFrom({"RANK=0", "WORLD_SIZE=2"}, &place, &error) && error.find("MASTER_PORT") != std::string::npos);
  CHECK(
      readFrom({"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2"}, &place, &error) &&
      place.launcher == "mpirun" && place.transport == "shm");
  CHECK(readFrom({"SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=8", "SLURM_STEP_NUM_NODES=2"}, &place, &error) &&
        place.launcher == "srun" && place.localSize == 4 && place.transport == "mpi");
  // The batch script itself does not run as a step of srun.
  CHECK(readFrom({"SLURM_PROCID=0", "SLURM_NTASKS=8"}, &place, &error) && place.launcher == "none");
  CHECK(!readFrom({"PCRT_RANK=2", "PCRT_SIZE=2"}, &place, &error) && error.find("rank 2 does not exist") == 0);
  CHECK(!readFrom({"PCRT_RANK=one"}, &place, &error) && error.find("PCRT_RANK='one'") == 0);
  CHECK(!readFrom({"PCRT_RANK=0", "PCRT_SIZE=99999999999"}, &place, &error));
  CHECK(!readFrom({"RANK=8", "WORLD_SIZE=8", "MASTER_PORT=1"}, &place, &error) &&
        error.ends_with("RANK=8 WORLD_SIZE=8 are set in the environment; if they are left over from another job, unset "
                        "RANK WORLD_SIZE"));
  CHECK(readFrom({"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"}, &place, &error) &&
        whoSaysSo(place, "; ").ends_with("unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE"));
  CHECK(readFrom({"PCRT_RANK=1", "PCRT_SIZE=2"}, &place, &error) && whoSaysSo(place, "; ").empty());
  // Every number, and every switch.
  CHECK(readFrom({"PCRT_THREADS=2", "PCRT_TIMEOUT_SECONDS=0.5", "PCRT_PORT=65535", "PCRT_CUDA_DEVICE=0",
                  "PCRT_POISON=1", "PCRT_CPU_BF16=0", "PCRT_CUDA_GRAPH=0", "PCRT_CUDA_TUNE="},
                 &place, &error));
  for (const char *wrong : {"PCRT_THREADS=abc",
                            "PCRT_THREADS=0",
                            "PCRT_THREADS=2x",
                            "PCRT_THREADS=-1",
                            "PCRT_TIMEOUT_SECONDS=soon",
                            "PCRT_TIMEOUT_SECONDS=0",
                            "PCRT_TIMEOUT_SECONDS=5s",
                            "PCRT_TIMEOUT_SECONDS=nan",
                            "PCRT_PORT=0",
                            "PCRT_PORT=65536",
                            "PCRT_PORT=80x",
                            "PCRT_CUDA_DEVICE=-1",
                            "PCRT_CUDA_DEVICE=one",
                            "PCRT_POISON=yes",
                            "PCRT_CPU_BF16=native",
                            "PCRT_CUDA_BLOCKING=2",
                            "PCRT_CUDA_GRAPH=off",
                            "PCRT_CUDA_TUNE=no",
                            "PCRT_CUDA_EPILOGUES=false",
                            "PCRT_CUDA_ROOM=-1",
                            "PCRT_CUDA_SHARE_DEVICE=on",
                            "PCRT_NCCL_BLOCKING=2"}) {
    std::string name(wrong, strchr(wrong, '=')), value = strchr(wrong, '=') + 1;
    CHECK(!readFrom({wrong}, &place, &error) && error.starts_with(name + "='" + value + "' is not "));
  }
  clearenv();
  CHECK(timeoutSeconds() == 300);
  setenv("PCRT_TIMEOUT_SECONDS", "1.5", 1);
  CHECK(timeoutSeconds() == 1.5);
  setenv("PCRT_TIMEOUT_SECONDS", "soon", 1);
  CHECK(timeoutSeconds() == 300);
  clearenv();
  setenv("PCRT_THREADS", "3", 1);
  CHECK(threadsOfThisRank() == 3);
  clearenv();
  CHECK(threadsOfThisRank() >= 1);
  std::unique_ptr<Comm> comm;
  setenv("PCRT_RANK", "0", 1);
  setenv("PCRT_SIZE", "2", 1);
  setenv("PCRT_TRANSPORT", "self", 1);
  CHECK(connect(&comm, &error) == PCRT_USAGE && error.find("PCRT_TRANSPORT=self is for one rank") == 0);
  setenv("PCRT_TRANSPORT", "shm", 1);
  setenv("PCRT_SHM_FD", "0", 1); // not a shared file
  CHECK(connect(&comm, &error) == PCRT_RESOURCE && error.find("shared memory of the run") == 0);
  setenv("PCRT_TRANSPORT", "mpi", 1);
  setenv("PCRT_MPI_PLUGIN", "./no-such-plugin.so", 1);
  CHECK(connect(&comm, &error) == PCRT_USAGE && error.find("cannot load the MPI transport") == 0);
}

static void testMeetingPoints() {
  CHECK(firstHost("gpu1") == "gpu1" && firstHost("a1,b2") == "a1" && firstHost("gpu[03-06,9],login1") == "gpu03");
  CHECK(firstHost("n[7]") == "n7" && firstHost("") == "");
  MeetingPoint point;
  std::string error;
  Place place;
  CHECK(readFrom({"SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=8", "SLURM_STEP_NUM_NODES=2", "SLURM_JOB_ID=7",
                  "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=gpu[03-04]", "PCRT_SECRET=s"},
                 &place, &error));
  CHECK(findMeetingPoint(place, &point, &error) && point.host == "gpu03" && point.ports.size() == 8);
  uint64_t run = point.run;
  setenv("SLURM_STEP_ID", "1", 1);
  CHECK(readPlace(&place, &error) && findMeetingPoint(place, &point, &error) && point.run != run);
  setenv("PCRT_PORT", "4711", 1);
  CHECK(findMeetingPoint(place, &point, &error) && point.ports == std::vector<int>{4711});
  setenv("PCRT_PORT", "70000", 1);
  CHECK(!findMeetingPoint(place, &point, &error) && error == "PCRT_PORT='70000' is not a port");
  // torchrun keeps MASTER_PORT for its store; others leave it to the program.
  CHECK(readFrom({"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=29500",
                  "PCRT_SECRET=s"},
                 &place, &error));
  CHECK(findMeetingPoint(place, &point, &error) && point.host == "h" && point.ports[0] == 29500);
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  CHECK(findMeetingPoint(place, &point, &error) && point.ports[0] != 29500 && point.ports.size() == 8);
  CHECK(readFrom({"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2"}, &place, &error));
  CHECK(!findMeetingPoint(place, &point, &error) && error.find("set MASTER_ADDR") != std::string::npos);
}

static std::string hex(const Bytes32 &bytes) {
  std::string text;
  for (char byte : bytes) {
    char two[3];
    snprintf(two, sizeof two, "%02x", uint8_t(byte));
    text += two;
  }
  return text;
}

static void testSecrets() {
  // RFC 4231, test cases 1, 2, 3 and 6.
  CHECK(hex(hmacSha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex(hmacSha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex(hmacSha256(std::string(20, '\xaa'), std::string(50, '\xdd'))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hex(hmacSha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  for (const char *host : {"localhost", "127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"})
    CHECK(isLoopback(host));
  for (const char *host : {"", "0.0.0.0", "::", "10.0.0.1", "localhost.example.org", "127.example.org", "1270.0.0.1"})
    CHECK(!isLoopback(host));

  std::string secret, error;
  auto find = [&](SharedBy who, const std::string &host) { return findSecret(who, host, &secret, &error); };
  clearenv();
  CHECK(find(SharedBy::Ranks, "127.0.0.1") && secret.empty());
  CHECK(!find(SharedBy::Ranks, "10.0.0.1") && error.find("give all of them the same PCRT_SECRET") != std::string::npos);
  CHECK(!find(SharedBy::Members, "gpu1"));
  setenv("PCRT_SECRET", "", 1);
  CHECK(!find(SharedBy::Ranks, "10.0.0.1"));
  setenv("PCRT_SECRET", "none", 1);
  CHECK(find(SharedBy::Ranks, "10.0.0.1") && secret.empty());
  setenv("PCRT_SECRET", "abc", 1);
  CHECK(find(SharedBy::Ranks, "10.0.0.1") && secret == "abc" && find(SharedBy::Members, "127.0.0.1") &&
        secret == "abc");
  CHECK(handSecretToRanks() && getenv("PCRT_SECRET") == std::string("abc"));

  FakeMachine machine;
  setenv("PCRT_SECRET_FILE", (machine.root + "/secret").c_str(), 1);
  CHECK(!find(SharedBy::Ranks, "10.0.0.1") && error.find("both set") != std::string::npos);
  unsetenv("PCRT_SECRET");
  CHECK(!find(SharedBy::Ranks, "127.0.0.1") && error.find("No such file") != std::string::npos);
  machine.write("/secret", "\n");
  CHECK(!find(SharedBy::Ranks, "127.0.0.1") && error.find("is empty") != std::string::npos);
  machine.write("/secret", std::string(5000, 'x'));
  CHECK(!find(SharedBy::Ranks, "127.0.0.1") && error.find("more than 4096 bytes") != std::string::npos);
  machine.write("/secret", "from a file\n");
  CHECK(find(SharedBy::Ranks, "10.0.0.1") && secret == "from a file");
  CHECK(handSecretToRanks() && !getenv("PCRT_SECRET"));
  setenv("PCRT_SECRET_FILE", machine.root.c_str(), 1);
  CHECK(!find(SharedBy::Ranks, "10.0.0.1") && error.find("is not a file") != std::string::npos);

  // pc-run draws another secret for each run, and none for a meeting.
  clearenv();
  CHECK(handSecretToRanks() && find(SharedBy::Ranks, "10.0.0.1") && secret.size() > 64);
  std::string first = secret;
  CHECK(handSecretToRanks() && find(SharedBy::Ranks, "10.0.0.1") && secret != first);
  CHECK(find(SharedBy::Members, "127.0.0.1") && secret.empty() && !find(SharedBy::Members, "10.0.0.1"));
}

namespace {
/// The control planes of a run whose ranks are threads of this process.
struct Planes {
  static constexpr int most = 4;
  std::unique_ptr<TcpControl> of[most];

  static Place placeOf(int size, const std::string &name) {
    Place place;
    place.size = place.localSize = size;
    place.run = name + " " + std::to_string(getpid());
    return place;
  }

  /// Calls `function` for the ranks from `first` on, each on a thread.
  static void forRanks(int first, int size, const std::function<void(int)> &function) {
    std::vector<std::thread> threads;
    for (int rank = first; rank < size; ++rank)
      threads.emplace_back(function, rank);
    for (std::thread &thread : threads)
      thread.join();
  }

  bool connect(const Place &place, const MeetingPoint &point) {
    std::atomic<bool> good{true};
    forRanks(0, place.size, [&](int rank) {
      Place mine = place;
      mine.rank = mine.localRank = rank;
      std::string error;
      if (TcpControl::connect(mine, point, &of[rank], &error) != PCRT_OK) {
        fprintf(stderr, "error: %s\n", error.c_str());
        good = false;
      }
    });
    return good;
  }
};
} // namespace

/// A rank that continues does not report ranks that have ended as lost, although rank 0 cannot deliver messages to
/// them.
static void testGoodbyes() {
  clearenv();
  for (int round = 0; round < 60; ++round) {
    Place place = Planes::placeOf(4, "goodbyes " + std::to_string(round));
    Planes planes;
    bool connected = planes.connect(place, meetingPointAt("127.0.0.1", place));
    CHECK(connected);
    if (!connected)
      return;
    Planes::forRanks(1, place.size, [&](int rank) { planes.of[rank].reset(); });
    CHECK(planes.of[0]->leftRank() == 1 && planes.of[0]->failure().empty());
  }
}

/// A rank that ends waits until one that is slow to read has got all that it has sent.
static void testSlowReader() {
  clearenv();
  Place place = Planes::placeOf(2, "slow reader");
  Planes planes;
  bool connected = planes.connect(place, meetingPointAt("127.0.0.1", place));
  CHECK(connected);
  if (!connected)
    return;
  constexpr int messages = 32; // more than sockets hold
  constexpr int64_t bytes = 1 << 20;
  Flow to{0, 0, true, bytes, messages, messages, "forward"}, from{1, 0, false, bytes, messages, messages, "forward"};
  to.partner = from.partner = 0;
  for (int rank : {0, 1})
    planes.of[rank]->openFlows(1);
  planes.of[0]->setHooks({[](Progress &) { sleep(2); }, nullptr});
  planes.of[1]->askProgress(0.01);
  std::vector<char> letter(bytes);
  std::string error;
  for (int i = 0; i < messages; ++i) {
    ++to.count;
    letter[0] = char(i);
    CHECK(planes.of[1]->sendLetter(to, 0, letter.data(), &error) == PCRT_OK);
  }
  planes.of[1].reset();
  for (int i = 0; i < messages; ++i) {
    ++from.count;
    CHECK(planes.of[0]->takeLetter(from, 0, letter.data(), &error) == PCRT_OK && letter[0] == char(i));
  }
  CHECK(planes.of[0]->failure().empty());
}

/// A virtual rank that leaves after another rank's failure frees its memory: no rank reads it any more.
static void testVirtualFailures(bool comesLate) {
  clearenv();
  VirtualWorld shared(3);
  std::atomic<bool> fails{comesLate}; ///< Rank 1 may fail.
  auto inState = [&](auto state) {
    for (;; usleep(100))
      if (std::lock_guard<std::mutex> lock(shared.mutex); state())
        return;
  };
  pcrt_move_desc sum{"sum", PCRT_ALL_REDUCE, 0, PCRT_F32, PCRT_SUM, 1 << 16, 1, 1, 1, 1, "forward", 0, 0, 0};
  pcrt_status status = shared.run([&](Comm &comm) -> pcrt_status {
    char *arena;
    CHECK(comm.allocateArena(1 << 20, &arena) == PCRT_OK);
    memset(arena, 0, 1 << 20);
    if (comm.rank() == 1) { // waits until rank 0 is in its move
      inState([&] { return shared.ranks[0].waitsIn && shared.ranks[0].slots[0].phase > 0 && fails; });
      comm.abort(PCRT_BAD_DATA, "a bad token");
      return PCRT_BAD_DATA;
    }
    Group pair;
    pair.ranks = {0, 2};
    pair.me = comm.rank() / 2;
    pair.name = "tp";
    if (comm.rank() == 2 && comesLate)
      inState([&] { return shared.ranks[0].left; });
    std::function<void()> meanwhile = [&] { // rank 2 still reads while rank 1 fails
      if (comm.rank() == 0)
        return;
      fails = true;
      inState([&] { return shared.failure != PCRT_OK; });
      usleep(100000);
      inState([&] {
        CHECK(!shared.ranks[0].left);
        return true;
      });
    };
    ParallelFor slowly(&meanwhile, [](void *pool, int64_t items, ParallelFor::Body body, void *arg) {
      (*static_cast<std::function<void()> *>(pool))();
      body(arg, 0, items);
    });
    return comm.move(sum, pair, arena, arena + (1 << 19), slowly);
  });
  CHECK(status == PCRT_BAD_DATA);
}

static void testRun() {
  std::unique_ptr<Comm> comm;
  std::string error;
  if (connect(&comm, &error) != PCRT_OK) {
    expect(false, error);
    return;
  }
  constexpr int64_t bytes = 8 << 20;
  char *arena;
  CHECK(comm->allocateArena(bytes, &arena) == PCRT_OK);
  Group all;
  for (int rank = 0; rank < comm->size(); ++rank)
    all.ranks.push_back(rank);
  all.me = comm->rank();
  memset(arena, 0, bytes);
  CHECK(comm->barrier() == PCRT_OK);
  CHECK(comm->peerResidentBytes() < 1 << 20);
  auto run = [&] {
    for (int kind = 0; kind < PCRT_NUM_MOVE_KINDS; ++kind) {
      if (pcrt_facts_of_move(kind)->way == PCRT_WAY_LINK)
        continue;
      pcrt_move_desc desc{"move", kind,         0,         PCRT_F32, PCRT_SUM, 16, comm->size() * 16, 64,
                          1,      comm->size(), "forward", 0,        0,        0};
      CHECK(comm->move(desc, all, arena, arena + bytes / 2) == PCRT_OK);
    }
    CHECK(comm->barrier() == PCRT_OK);
  };
  run();
  int64_t before = allocations;
  for (int i = 0; i < 10; ++i)
    run();
  CHECK(allocations == before);
  // An all_gather reads all of the peers' sources: they are resident here now.
  pcrt_move_desc gather{"gather", PCRT_ALL_GATHER, 0, PCRT_F32, PCRT_SUM, 1, comm->size(), 1 << 18, 1,
                        1,        "forward",       0, 0,        0};
  CHECK(comm->move(gather, all, arena, arena + bytes / 2) == PCRT_OK);
  int64_t read = (comm->size() - 1) * (int64_t(1) << 20);
  CHECK(comm->peerResidentBytes() >= read && comm->peerResidentBytes() <= (comm->size() - 1) * bytes);
  // Pages through which messages of plain memory passed do not stay resident.
  std::vector<char> mine(16 << 20, 1), gathered(mine.size() * comm->size());
  CHECK(comm->allGatherBytes(mine.data(), int64_t(mine.size()), gathered.data()) == PCRT_OK);
  CHECK(gathered.back() == 1);
  CHECK(comm->barrier() == PCRT_OK);
  CHECK(comm->peerResidentBytes() <= (comm->size() - 1) * (bytes + (int64_t(2) << 20)));
  char *second;
  CHECK(comm->allocateArena(bytes, &second) == PCRT_INTERNAL);
}

/// Sums by codes of 8 bits have the same bits on all ranks. The error is at most half a code per addend.
static void testCodes() {
  std::mt19937 draw(5);
  std::normal_distribution<float> normal;
  for (int64_t elements : {1, 3, 4, 255, 256, 257, 2048, 100000}) {
    constexpr int ranks = 3;
    std::vector<std::vector<float>> addends(ranks, std::vector<float>(elements)), sums = addends;
    for (auto &addend : addends)
      for (int64_t i = 0; i < elements; ++i)
        addend[i] = normal(draw) * std::exp(8 * normal(draw) * float(i / PCRT_CODES_BLOCK % 3)); // blocks of all sizes
    addends[1].assign(elements, 0);
    VirtualWorld world(ranks);
    pcrt_status status = world.run([&](Comm &comm) -> pcrt_status {
      char *arena;
      int64_t data = (4 * elements + 63) / 64 * 64;
      PCRT_TRY(comm.allocateArena(data + pcrt_codes_bytes(elements, ranks), &arena));
      memcpy(arena, addends[comm.rank()].data(), 4 * elements);
      Group all = worldGroup(comm.rank(), ranks);
      all.id = 0;
      pcrt_move_desc desc{"codes", PCRT_ALL_REDUCE, 0, PCRT_F32, PCRT_SUM, elements, 1, 1, 1, 1, "round", 0, 0, data};
      PCRT_TRY(sumByCodes(comm, desc, all, arena, arena, arena + data, {}));
      memcpy(sums[comm.rank()].data(), arena, 4 * elements);
      return PCRT_OK;
    });
    CHECK(status == PCRT_OK && !memcmp(sums[0].data(), sums[1].data(), 4 * elements) &&
          !memcmp(sums[0].data(), sums[2].data(), 4 * elements));
    double worst = 0; // of the bound
    for (int64_t block = 0; block < elements; block += PCRT_CODES_BLOCK) {
      double bound = 0;
      int64_t end = std::min(elements, block + PCRT_CODES_BLOCK);
      for (const auto &addend : addends)
        bound += std::abs(*std::max_element(addend.begin() + block, addend.begin() + end,
                                            [](float a, float b) { return std::abs(a) < std::abs(b); })) /
                 254;
      for (int64_t i = block; i < end; ++i)
        worst = std::max(worst, std::abs(sums[0][i] - (double(addends[0][i]) + addends[2][i])) / bound);
    }
    CHECK(worst < 1.001);
    CHECK(elements < 2048 || worst > 0.5);
  }
  // A number that is not finite stays so, without effect on other blocks. A block that is too small for a scale becomes
  // zero.
  float odd[2 * PCRT_CODES_BLOCK + 2] = {1, -2, INFINITY};
  odd[PCRT_CODES_BLOCK] = NAN;
  odd[2 * PCRT_CODES_BLOCK] = 1e-44f, odd[2 * PCRT_CODES_BLOCK + 1] = -1e-45f;
  int64_t count = std::size(odd);
  std::vector<char> codes(4 * pcrt_code_words(count));
  std::vector<float> back(count, 7);
  encode(odd, count, codes.data(), {});
  addDecoded(codes.data(), 1, count, back.data(), {});
  CHECK(std::isnan(back[0]) && std::isnan(back[PCRT_CODES_BLOCK + 5]));
  CHECK(back[2 * PCRT_CODES_BLOCK] == 0 && back[2 * PCRT_CODES_BLOCK + 1] == 0);
  float exact[3] = {-127, 64, 1}; // whole numbers up to 127 do not change
  encode(exact, 3, codes.data(), {});
  addDecoded(codes.data(), 1, 3, back.data(), {});
  CHECK(back[0] == -127 && back[1] == 64 && back[2] == 1);
}

int main() {
  if (getenv("PCRT_RANK")) {
    testRun();
  } else {
    testRun();
    testCores();
    testFreeMemory();
    testLackOfMemory();
    testEnvironments();
    testMeetingPoints();
    testSecrets();
    testGoodbyes();
    testSlowReader();
    testVirtualFailures(true);
    testVirtualFailures(false);
    testCodes();
  }
  return finishChecks() ? PCRT_VERIFICATION : PCRT_OK;
}
