//===- Results.cpp - The files that a run writes at its end ---------------===//
// A trace that cannot be written is a warning, because the run is still good; a summary that cannot be written is an
// error, because programs read it.
//===----------------------------------------------------------------------===//
#include "run/Results.h"
#include "base/FileStream.h"
#include "comm/Collective.h"
#include "pcrt/outputs.h"

using namespace pcrt;

void pcrt::writeTrace(pcrt_context &context, const std::string &path) {
  if (path.empty())
    return;
  const Program &program = context.program;
  try {
    onAllRanks(context.comm, [&] {
      context.profile.writeTrace(path, context.comm, [&](int rank) -> const pcrt_program & {
        int stage = program.stageAxis < 0 ? 0 : int(program.mesh.coordinate(rank, program.stageAxis));
        return program.stages[stage]->abi;
      });
    });
  } catch (const Failure &failure) {
    if (failure.status != PCRT_RESOURCE)
      throw;
    if (context.comm.rank() == 0)
      fprintf(stderr, "pc: warning: %s\n", failure.message.c_str());
  }
}

void pcrt::writeSummary(const pcrt_context &context, const RunFigures &figures, const std::string &path) {
  onAllRanks(context.comm, [&] {
    const Json summary = makeSummary(context, figures);
    if (context.comm.rank() != 0)
      return;
    const std::string text = summary.dump(1) + "\n";
    OutputFile file;
    if (!file.open(path) || !writeAll(file.descriptor(), text.data(), int64_t(text.size()), 0) || !file.commit())
      fail(PCRT_RESOURCE, withErrno("cannot write " + path));
  });
}
