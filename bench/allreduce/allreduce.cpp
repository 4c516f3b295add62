//===- allreduce.cpp - The time of a 64 MiB all_reduce, compared with memcpy and MPI -===//
// One rank of the benchmark; allreduce.sh runs it under pc-run and mpirun. In one process and one run it times, in
// turns: memcpy of the same bytes (on all ranks at once), the runtime's all_reduce, and MPI_Allreduce, if it was built
// with MPI and mpirun started it.
//===----------------------------------------------------------------------===//
#include "comm/Comm.h"
#include "comm/ShmControl.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#ifdef BENCH_MPI
#include <mpi.h>
#endif

using namespace pcrt;

static void require(Comm &comm, pcrt_status status) {
  if (status == PCRT_OK)
    return;
  fprintf(stderr, "error: %s\n", comm.error().c_str());
  exit(status);
}

int main(int argc, char **argv) {
  const int64_t bytes = 64 << 20, elements = bytes / 4;
  const int rounds = argc > 1 ? atoi(argv[1]) : 15;
#ifdef BENCH_MPI
  MPI_Init(nullptr, nullptr);
#endif
  std::unique_ptr<Comm> comm;
  std::string error;
  if (pcrt_status status = connect(&comm, &error); status != PCRT_OK) {
    fprintf(stderr, "error: %s\n", error.c_str());
    return status;
  }
  char *arena;
  require(*comm, comm->allocateArena(2 * bytes, &arena));
  auto in = reinterpret_cast<float *>(arena);
  Group all;
  for (int rank = 0; rank < comm->size(); ++rank)
    all.ranks.push_back(rank);
  all.me = comm->rank();

  struct Row {
    const char *name;
    std::function<void()> run;
    std::vector<double> seconds;
  };
  auto reduce = [&](int64_t count) {
    pcrt_move_desc desc{"all_reduce", PCRT_ALL_REDUCE, 0, PCRT_F32, PCRT_SUM, count, 1, 1, 1, 1, "backward", 0, 0, 0};
    require(*comm, comm->move(desc, all, in, in));
  };
  std::vector<Row> rows{
      {"memcpy 64 MiB, each rank", [&] { memcpy(arena + bytes, arena, bytes); }, {}},
      {"pc all_reduce 64 MiB f32", [&] { reduce(elements); }, {}},
      {"pc all_reduce 8 B f32", [&] { reduce(2); }, {}},
  };
#ifdef BENCH_MPI
  auto mpiReduce = [&](int64_t count) {
    MPI_Allreduce(MPI_IN_PLACE, in, int(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  rows.push_back({"MPI_Allreduce 64 MiB f32", [&] { mpiReduce(elements); }, {}});
  rows.push_back({"MPI_Allreduce 8 B f32", [&] { mpiReduce(2); }, {}});
#endif
  for (int round = -2; round < rounds; ++round) // two rounds to warm up
    for (Row &row : rows) {
      // Values stay finite: every all_reduce starts from the same small numbers.
      std::fill(in, in + elements, 1.0f);
      int repeats = strstr(row.name, " 8 B") ? 200 : 1;
      require(*comm, comm->barrier());
      double start = monotonicSeconds();
      for (int i = 0; i < repeats; ++i)
        row.run();
      require(*comm, comm->barrier());
      if (round >= 0)
        row.seconds.push_back((monotonicSeconds() - start) / repeats);
      if (row.name[0] != 'm' && repeats == 1 && in[elements - 1] != float(comm->size())) {
        fprintf(stderr, "error: %s: wrong result\n", row.name);
        return PCRT_VERIFICATION;
      }
    }
  if (comm->rank() == 0) {
    double copy = 0;
    for (Row &row : rows) {
      std::sort(row.seconds.begin(), row.seconds.end());
      double best = row.seconds.front(), median = row.seconds[row.seconds.size() / 2];
      copy = copy ? copy : median;
      bool large = !strstr(row.name, " 8 B");
      printf("| %d | %-25s | %8.4f | %9.4f |", comm->size(), row.name, best * 1e3, median * 1e3);
      if (large)
        printf(" %6.2f | %6.2f |\n", bytes / median * 1e-9, median / copy);
      else
        printf("        |        |\n");
    }
  }
#ifdef BENCH_MPI
  comm.reset();
  MPI_Finalize();
#endif
  return 0;
}
