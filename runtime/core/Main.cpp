//===- Main.cpp - the main function of every compiled program -------------===//
#include "comm/Environment.h"
#include "comm/ShmControl.h"
#include "core/Failure.h"
#include "core/Run.h"

#include <cstdio>
#include <new>

using namespace pcrt;

/// Says once why the run ends: through the launcher where it listens, else on stderr.
static void report(const Place &place, const Failure &failure) {
  std::string ignored;
  if (place.sharedFile >= 0) {
    if (ControlBlock *control = mapControl(place.sharedFile, &ignored)) {
      control->recordFailure(place.rank, failure.status, failure.message);
      unmapControl(control);
      return;
    }
  }
  if (place.rank == 0 || failure.status == PCRT_PEER_LOST || failure.status == PCRT_TIMEOUT)
    fprintf(stderr, "pc: error: %s\n", failure.message.c_str());
}

static int run(int argc, char **argv, Place &place, std::unique_ptr<Comm> &comm) {
  std::string error;
  if (!readPlace(&place, &error))
    fail(PCRT_USAGE, error);
  Options options = parseOptions(argc, argv);
  if (options.help) {
    if (place.rank == 0)
      fputs(helpText, stdout);
    return PCRT_OK;
  }
  Program program(pc_program);
  if (options.info) {
    if (place.rank == 0)
      fputs(describeProgram(program).c_str(), stdout);
    return PCRT_OK;
  }
  if (pcrt_status status = connect(&comm, &error); status != PCRT_OK)
    fail(status, error);
  runProgram(program, options, *comm);
  return PCRT_OK;
}

int main(int argc, char **argv) {
  Place place;
  std::unique_ptr<Comm> comm;
  Failure failure{PCRT_OK, ""};
  try {
    return run(argc, argv, place, comm);
  } catch (const Failure &thrown) {
    failure = thrown;
  } catch (const std::bad_alloc &) {
    failure = {PCRT_RESOURCE, "out of memory"};
  } catch (const std::exception &unexpected) {
    failure = {PCRT_INTERNAL, unexpected.what()};
  }
  fflush(stdout);
  report(place, failure);
  if (comm)
    comm->abort(failure.status, failure.message.c_str());
  return failure.status;
}
