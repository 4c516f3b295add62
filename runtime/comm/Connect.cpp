//===- Connect.cpp - chooses the transport of a run -----------------------===//
#include "comm/Environment.h"
#include "comm/Rendezvous.h"
#include "comm/ShmComm.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>

using namespace pcrt;

namespace {

/// One rank. Every group has one member, so Comm::move does everything.
class SelfComm final : public Comm {
public:
  SelfComm() : Comm(0, 1) {}
  ~SelfComm() override {
    if (arena)
      munmap(arena, arenaBytes);
  }

  const char *transport() const override { return "self"; }

  pcrt_status allocateArena(int64_t bytes, char **base) override {
    constexpr int64_t page = 2 << 20;
    if (arena || bytes < 0)
      return fail(PCRT_INTERNAL, arena ? "the arena was allocated twice" : "negative arena size");
    if (std::string problem = checkMemory(double(bytes)); !problem.empty())
      return fail(PCRT_RESOURCE, problem);
    arenaBytes = bytes + page;
    arena = mmap(nullptr, arenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) {
      arena = nullptr;
      return fail(PCRT_RESOURCE, "cannot map an arena of " + std::to_string(bytes) + " bytes: " + strerror(errno));
    }
    madvise(arena, arenaBytes, MADV_HUGEPAGE);
    auto at = reinterpret_cast<uintptr_t>(arena);
    *base = static_cast<char *>(arena) + (-at & (page - 1));
    return PCRT_OK;
  }

  pcrt_status barrier() override { return PCRT_OK; }

  pcrt_status allGatherBytes(const void *mine, int64_t n, void *all) override {
    if (n > 0 && mine != all)
      memcpy(all, mine, n);
    return PCRT_OK;
  }

  void abort(pcrt_status, const char *) override {}

protected:
  pcrt_status exchange(const pcrt_move_desc &, const Group &, const void *, void *, const ParallelFor &) override {
    return fail(PCRT_INTERNAL, "a run of one rank has no groups of several");
  }

private:
  void *arena = nullptr;
  int64_t arenaBytes = 0;
};

} // namespace

/// The MPI transport is a plug-in, so that programs need no MPI library unless they use it.
static pcrt_status connectMpi(std::unique_ptr<Comm> *out, std::string *error) {
  const char *chosen = getenv("PCRT_MPI_PLUGIN");
  const char *path = chosen ? chosen : PCRT_MPI_PLUGIN_PATH;
  // OpenMPI finds its own plug-ins only if its symbols are global.
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    *error = std::string("cannot load the MPI transport: ") + dlerror() +
             "; install OpenMPI (libopenmpi-dev) and build again, or set PCRT_MPI_PLUGIN";
    return PCRT_USAGE;
  }
  using Connect = int (*)(Comm **, char *, size_t);
  auto connectPlugin = reinterpret_cast<Connect>(dlsym(library, "pcrt_mpi_connect"));
  char message[1024] = "the plug-in has no pcrt_mpi_connect";
  Comm *comm = nullptr;
  int status = connectPlugin ? connectPlugin(&comm, message, sizeof message) : PCRT_INTERNAL;
  if (status != PCRT_OK)
    *error = message;
  out->reset(comm);
  return pcrt_status(status);
}

pcrt_status pcrt::connect(std::unique_ptr<Comm> *out, std::string *error) {
  Place place;
  if (!readPlace(&place, error))
    return PCRT_USAGE;
  if (place.transport == "mpi")
    return connectMpi(out, error);
  if (place.transport == "self") {
    if (place.size > 1) {
      *error = "PCRT_TRANSPORT=self is for one rank, the run has " + std::to_string(place.size);
      return PCRT_USAGE;
    }
    *out = std::make_unique<SelfComm>();
    return PCRT_OK;
  }
  if (place.localSize < place.size) {
    *error = "the shm transport connects the ranks of one machine, but " + place.launcher +
             " started them on several; use PCRT_TRANSPORT=mpi";
    return PCRT_USAGE;
  }
  int fd = place.sharedFile;
  if (fd < 0) {
    if (pcrt_status status = meet(place, &fd, error); status != PCRT_OK)
      return status;
  } else {
    fcntl(fd, F_SETFD, FD_CLOEXEC); // not for the children of this rank
  }
  return ShmComm::join(fd, place.rank, place.sharedFile >= 0, out, error);
}
