//===- Connect.cpp - Chooses the transport of a run -----------------------===//
// Turns a Place (Environment.h) into a Comm. Ranks on devices get the control plane of `tcp`, because they move their
// data themselves and need the control plane only to end each other's waits.
//===----------------------------------------------------------------------===//
#include "comm/Environment.h"
#include "comm/HostArena.h"
#include "comm/Rendezvous.h"
#include "comm/ShmComm.h"
#include "comm/TcpComm.h"
#include "comm/VirtualComm.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>

using namespace pcrt;

namespace {

/// The transport of a run with one rank. Every group has one member, so Comm::move does everything.
class SelfComm final : public Comm {
public:
  SelfComm() : Comm(0, 1) {}

  const char *transport() const override { return "self"; }

  pcrt_status allocateArena(int64_t bytes, char **base) override {
    std::string error;
    checkArenas(bytes, &error);
    pcrt_status status = error.empty() ? arena.allocate(bytes, base, &error) : PCRT_RESOURCE;
    return status == PCRT_OK ? status : fail(status, error);
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
    return fail(PCRT_INTERNAL, "internal error: a run of one rank has no groups of several ranks");
  }
  pcrt_status prepareFlows() override { return PCRT_OK; }
  pcrt_status put(Flow &, int, const void *) override { return noFlows(); }
  pcrt_status take(Flow &, int, void *) override { return noFlows(); }

private:
  pcrt_status noFlows() {
    return fail(PCRT_INTERNAL, "internal error: a run of one rank has no messages between ranks");
  }

  HostArena arena;
};

} // namespace

/// Loads the MPI transport, which is a plug-in so that programs need no MPI library unless they use it. Its bare name
/// is found in the library folder of the runtime, which is in the DT_RUNPATH of every program that pc-compile links.
static pcrt_status connectMpi(std::unique_ptr<Comm> *out, std::string *error) {
  const char *chosen = getenv("PCRT_MPI_PLUGIN");
  const char *path = chosen ? chosen : "pcrt_mpi.so";
  // OpenMPI finds its own plug-ins only if its symbols are global.
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    *error = std::string("cannot load the MPI transport: ") + dlerror() +
             "; install OpenMPI (libopenmpi-dev) and build again, or set PCRT_MPI_PLUGIN, or " + overTcp;
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

static pcrt_status connectPlace(const Place &place, std::unique_ptr<Comm> *out, std::string *error) {
  if (place.transport == "mpi")
    return connectMpi(out, error);
  if (place.transport == "tcp")
    return TcpComm::join(place, out, error);
  if (place.transport == "virtual") {
    *error = "virtual ranks share one process, but this run has one process per rank";
    return PCRT_USAGE;
  }
  if (place.transport == "self") {
    if (place.size > 1) {
      *error = "PCRT_TRANSPORT=self is for one rank, but the number of ranks is " + std::to_string(place.size);
      return PCRT_USAGE;
    }
    *out = std::make_unique<SelfComm>();
    return PCRT_OK;
  }
  if (place.localSize < place.size) {
    *error = "the shm transport only connects ranks on one machine, but " + place.launcher +
             " started them on several; " + (place.launcher == "torchrun" ? overTcp : "use PCRT_TRANSPORT=mpi");
    return PCRT_USAGE;
  }
  int fd = place.sharedFile;
  if (fd < 0) {
    PCRT_TRY(meet(place, &fd, error));
  } else {
    fcntl(fd, F_SETFD, FD_CLOEXEC); // children of this rank do not inherit it
  }
  return ShmComm::join(fd, place.rank, place.sharedFile >= 0, out, error);
}

pcrt_status pcrt::connect(std::unique_ptr<Comm> *out, std::string *error) {
  Place place;
  return readPlace(&place, error) ? connectPlace(place, out, error) : PCRT_USAGE;
}

pcrt_status pcrt::runRanks(int programRanks, bool onDevices, const std::function<pcrt_status(Comm &)> &body,
                           std::string *error) {
  Place place;
  if (!readPlace(&place, error))
    return PCRT_USAGE;
  if (place.transport == "virtual")
    return VirtualWorld(place.launcher == "pc-run" ? place.size : programRanks).run(body);
  if (onDevices && place.size > 1 && !getenv("PCRT_TRANSPORT"))
    place.transport = "tcp";
  std::unique_ptr<Comm> comm;
  PCRT_TRY(connectPlace(place, &comm, error));
  return body(*comm);
}
