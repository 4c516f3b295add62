//===- Request.cpp - Checks that a program can do what its flags ask ------===//
// One check for each flag that only some programs accept.
//===----------------------------------------------------------------------===//
#include "run/Request.h"
#include "base/Failure.h"
#include "run/SameRun.h"

using namespace pcrt;

void pcrt::checkRequest(const Program &program, const Options &options, int ranks) {
  if (program.mesh.ranks() != ranks)
    fail(PCRT_USAGE, otherSize(program, ranks));
  if (!options.requests.empty() || !options.answers.empty())
    fail(PCRT_USAGE, "--requests and --answers need a program compiled with --mode=generate");
  if (options.data.empty())
    fail(PCRT_USAGE, "--data FILE is missing; add it, or see --help");
  if (options.evalEvery && !program.training)
    fail(PCRT_USAGE,
         "--eval-every needs a program compiled with --mode=train; one compiled with --mode=eval always evaluates");
  for (auto [given, flag] : {std::pair(options.skipSpikes.has_value(), "--skip-spikes"),
                             std::pair(!options.dumpGrads.empty(), "--dump-grads")})
    if (program.rounds.any() && given)
      fail(PCRT_USAGE,
           std::string(flag) + " does not work with local SGD, whose replicas have different norms and gradients");
  if (program.masked && options.targets.empty())
    fail(PCRT_USAGE, "this model does not predict the next token, so it needs --targets FILE; see --help");
  if (keepsOnDisk(program) && options.scratch.empty())
    fail(PCRT_USAGE, "this program keeps values on disk, so it needs --scratch DIR, a directory on a local disk");
  if (!keepsOnDisk(program) && !options.scratch.empty())
    fail(PCRT_USAGE, "--scratch needs a program compiled with --offload");
  if (options.meet.empty() && !options.name.empty())
    fail(PCRT_USAGE, "--name needs --meet HOST:PORT");
  if (!program.hasAdapter() && !options.adapter.empty())
    fail(PCRT_USAGE, "--adapter needs a program compiled with --lora");
  if (!program.hasAdapter() && !options.init.empty() && !options.load.empty())
    fail(PCRT_USAGE, "--init and --load exclude each other, because --load reads the parameters from the checkpoint");
  if (options.eval && program.training)
    fail(PCRT_USAGE, "--eval needs a program compiled with --mode=eval");
  if (!program.training && (!options.save.empty() || !options.checkpoint.empty()))
    fail(PCRT_USAGE,
         std::string(options.save.empty() ? "--checkpoint" : "--save") + " needs a program compiled with --mode=train");
}
