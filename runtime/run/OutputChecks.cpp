//===- OutputChecks.cpp - Protects files from a run's outputs -------------===//
// Compares files by device and inode (clashOfOutputs). A checkpoint is compared with `before` by step and by the
// identity of its data, not by its model or flags: checkModel and checkSameTrajectory have done that for `before`.
//===----------------------------------------------------------------------===//
#include "run/OutputChecks.h"
#include "base/Failure.h"
#include "checkpoint/SaveDirectory.h"

#include <filesystem>

using namespace pcrt;

void pcrt::checkOutputs(const Options &options, const SampleData &data, const std::vector<std::string> &weights) {
  std::vector<NamedPath> inputs, outputs = outputsOf(options);
  for (const std::string &path : weights)
    for (const NamedPath &file : filesOfModel("the weights", path))
      inputs.push_back(file);
  inputs.push_back({"the program", "/proc/self/exe"});
  inputs.push_back({"--routing", options.routing});
  for (const SampleData::File &file : data.filesRead())
    inputs.push_back({file.flag, file.path});
  std::string why = clashOfOutputs(inputs, outputs);
  if (why.empty() && !options.save.empty()) {
    for (const char *name : checkpointFiles)
      outputs.push_back({"--save", options.save + "/" + name});
    why = clashOfOutputs({}, outputs);
  }
  if (!why.empty())
    fail(PCRT_USAGE, why);
}

void pcrt::checkReplaces(const Options &options, const Trajectory *before) {
  if (options.save.empty() || options.overwrite)
    return;
  std::string there = whereCheckpointIs(options.save);
  std::error_code error;
  if (!std::filesystem::exists(there + "/" + trajectoryName, error))
    return;
  Trajectory old = Trajectory::read(there);
  bool isSameData = before && identityOf(old.data).sum == identityOf(before->data).sum;
  if (isSameData && (old.step <= before->step || old.ended))
    return;
  fail(PCRT_USAGE, "--save " + options.save + " contains a checkpoint of step " + std::to_string(old.step) +
                       ", but this run " +
                       (before ? "continues from step " + std::to_string(before->step) + " of another checkpoint"
                               : "starts from the beginning") +
                       "; use another directory, continue from it with --load, or add --overwrite");
}
