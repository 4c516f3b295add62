//===- ThisRank.h - The rank of a test program ----------------------------===//
// Connects tests as ranks of a run, under any launcher and transport.
//===----------------------------------------------------------------------===//
#ifndef PCRT_TEST_THISRANK_H
#define PCRT_TEST_THISRANK_H

#include "comm/Comm.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

/// The communicator of this thread, because a virtual rank is a thread; null before it has joined.
inline thread_local pcrt::Comm *comm = nullptr;

/// Ends this rank, and sends the other ranks the reason.
[[noreturn]] inline void leave(pcrt_status status, const std::string &message) {
  fprintf(stderr, "error: rank %d: %s\n", comm ? comm->rank() : -1, message.c_str());
  if (comm)
    comm->abort(status, message.c_str());
  _Exit(status);
}

inline void require(pcrt_status status) {
  if (status != PCRT_OK)
    leave(status, comm->error());
}

/// Calls `f` with every mesh of `ranks` ranks with up to three axes.
inline void forAllMeshes(int ranks, const std::function<void(const std::vector<int> &)> &f) {
  f({ranks});
  for (int a = 2; a < ranks; ++a)
    for (int b = 2; a * b <= ranks; ++b) {
      if (a * b == ranks)
        f({a, b});
      else if (ranks % (a * b) == 0)
        f({a, b, ranks / (a * b)});
    }
}

/// The group of this rank along `axes` (major to minor) of `mesh`.
inline pcrt::Group makeGroup(const std::vector<int> &mesh, const std::vector<int> &axes, int id) {
  std::vector<int> strides(mesh.size(), 1);
  for (int axis = int(mesh.size()) - 2; axis >= 0; --axis)
    strides[axis] = strides[axis + 1] * mesh[axis + 1];
  pcrt::Group group;
  group.id = id;
  int base = comm->rank(), count = 1;
  for (int axis : axes) {
    base -= comm->rank() / strides[axis] % mesh[axis] * strides[axis];
    count *= mesh[axis];
    group.name += (group.name.empty() ? "" : ",") + std::string("a") + std::to_string(axis);
  }
  for (int index = 0; index < count; ++index) {
    int rank = base, rest = index;
    for (int i = int(axes.size()) - 1; i >= 0; --i) {
      rank += rest % mesh[axes[i]] * strides[axes[i]];
      rest /= mesh[axes[i]];
    }
    if (rank == comm->rank())
      group.me = index;
    group.ranks.push_back(rank);
  }
  return group;
}

#endif // PCRT_TEST_THISRANK_H
