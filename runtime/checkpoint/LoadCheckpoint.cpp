//===- LoadCheckpoint.cpp - Loading the state of training -----------------===//
// Every rank reads its own blocks and adds up their checksums, and all compare the totals with trajectory.json.
//===----------------------------------------------------------------------===//
#include "base/Failure.h"
#include "checkpoint/AdapterConfig.h"
#include "checkpoint/Checkpoint.h"
#include "checkpoint/SavedTensors.h"
#include "checkpoint/StateCodes.h"
#include "comm/Collective.h"
#include "data/Init.h"
#include "pcrt/block_codes.h"
#include "pcrt/float8.h"
#include "replicas/Rounds.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

using namespace pcrt;
namespace fs = std::filesystem;

/// Throws unless the file has as many bytes as when it was saved.
static void checkSize(const std::string &directory, const std::string &name, const Trajectory &trajectory) {
  std::string path = directory + "/" + name;
  std::error_code error;
  int64_t bytes = int64_t(fs::file_size(path, error));
  auto saved = trajectory.files.find(name);
  if (error)
    fail(PCRT_BAD_DATA, "cannot read " + path + ": " + error.message());
  if (saved == trajectory.files.end() || saved->second != bytes)
    fail(PCRT_BAD_DATA, path + " is not the file described by " + trajectoryName + " in the same directory: it has " +
                            std::to_string(bytes) + " bytes" +
                            (saved == trajectory.files.end() ? "" : ", not " + std::to_string(saved->second)));
}

/// Compares the sums of the tensors that the ranks have read from a file, over all ranks, with those that were saved.
static void checkSums(const std::string &directory, const std::string &file, const Trajectory &trajectory,
                      const TensorSums &sums) {
  for (auto &[name, sum] : sums) {
    const TensorRecord *record = trajectory.record(file, name);
    if (!record || record->sum != sum.text())
      fail(PCRT_BAD_DATA, directory + "/" + file + ": tensor '" + name + "' was changed after it was saved: " +
                              (record ? "its checksum is " + sum.text() + ", but was " + record->sum
                                      : std::string(trajectoryName) + " does not list it"));
  }
}

/// The tensors of the model, or of the adapter, in all stages.
static TensorSums modelSums(const Program &program, bool adapter) {
  TensorSums sums;
  for (const Program *stage : program.stages)
    for (const Parameter &parameter : stage->parameters)
      for (const Part &part : parameter.parts)
        if (parameter.isAdapter() == adapter)
          sums[part.source] = {};
  return sums;
}

/// The name of the scales of a saved state's part, if the state has codes.
static std::string scalesOf(const Saved &saved, const Part &part) {
  const std::string &state = saved.tensor->name;
  return state + PCRT_SCALES + saved.prefix.substr(state.size()) + part.source;
}

/// The scales of a saved state, if the program has it in codes; or null.
static const State *scalesOf(const Saved &saved, const Program &program) {
  bool isState = saved.tensor != saved.parameter && saved.tensor->dtype == PCRT_I8;
  return isState ? program.stateOf(*saved.parameter, saved.tensor->name + PCRT_SCALES) : nullptr;
}

/// Whether a saved tensor is the scales of codes that the checkpoint does not have: it has their state in f32.
static bool isMissingScale(const Saved &saved, const Part &part, const Program &program, const Trajectory &trajectory) {
  const std::string &name = saved.tensor->name;
  if (saved.tensor == saved.parameter || !name.ends_with(PCRT_SCALES))
    return false;
  const State *codes = program.stateOf(*saved.parameter, name.substr(0, name.size() - strlen(PCRT_SCALES)));
  return codes && codes->dtype == PCRT_I8 && !trajectory.record(stateFile, saved.nameOf(part));
}

/// Whether a saved tensor is a history of magnitudes that the checkpoint does not have, or not for all parts. It starts
/// with zeros.
static bool isMissingHistory(const Saved &saved, const Trajectory &trajectory) {
  return saved.tensor != saved.parameter && saved.tensor->name.ends_with(PCRT_HISTORY) &&
         std::any_of(saved.parts->begin(), saved.parts->end(),
                     [&](const Part &part) { return !trajectory.record(stateFile, saved.nameOf(part)); });
}

/// Prints how many tensors of states the checkpoint stores in another form than the program.
static void tellConverted(const Program &program, const Trajectory &trajectory, const std::string &directory) {
  std::set<std::string> rounded, decoded;
  for (const Program *stage : program.stages)
    for (const Saved &saved : savedTensors(*stage, trajectory.step, 1)) {
      std::string name = saved.nameOf((*saved.parts)[0]);
      const TensorRecord *stored = trajectory.record(stateFile, name);
      if (saved.inModel || saved.inAverage || saved.tensor == saved.parameter || !stored)
        continue;
      if (scalesOf(saved, *stage) && stored->dtype == "F32")
        rounded.insert(name);
      else if (saved.tensor->dtype == PCRT_F32 && stored->dtype == "I8")
        decoded.insert(name);
    }
  if (!rounded.empty())
    fprintf(stderr, "pc: warning: %s has f32 states; %zu of them were rounded to 8 bits\n", directory.c_str(),
            rounded.size());
  if (!decoded.empty())
    fprintf(stderr, "pc: %zu states of %s have 8 bits; they were converted to f32 without loss\n", decoded.size(),
            directory.c_str());
}

/// Reads a state if it, or its tensors in the file, are codes; otherwise returns false. The scales with which codes are
/// decoded are checked here, because the program does not have them.
static bool readCodes(const StoredState &state, const Safetensors &file, const std::string &directory,
                      const Trajectory &trajectory, std::vector<TensorSum> &sums) {
  const Saved &saved = state.saved;
  const bool isStored = state.stored[0]->dtype == "I8";
  const State *scales = scalesOf(saved, state.program);
  if (saved.inModel || (!isStored && !scales))
    return false;
  if (!saved.tensor->isOn(state.program.mesh, state.rank))
    return true;
  if (isStored && scales) {
    state.copy(sums);
  } else if (scales) {
    state.encode(*scales, sums);
  } else {
    std::vector<const StoredTensor *> found;
    TensorSums own;
    for (const Part &part : *saved.parts) {
      std::string name = scalesOf(saved, part);
      found.push_back(file.find(name));
      const TensorRecord *record = trajectory.record(stateFile, name);
      if (!found.back() || !record || record->shape.size() != part.shape.size())
        fail(PCRT_BAD_DATA, directory + "/" + stateFile + ": tensor '" + name + "' is missing");
      checkStored(found.back(), name, record->shape, directory, file);
      auto [sum, isNew] = own.try_emplace(name);
      if (!isNew) // parts may be of one tensor
        continue;
      std::vector<float> all(size_t(product(record->shape)));
      loadFloats(*found.back(), 0, int64_t(all.size()), all.data());
      sum->second.add(0, all.data(), int64_t(all.size()));
    }
    checkSums(directory, stateFile, trajectory, own);
    state.decode(found, sums);
  }
  return true;
}

/// Reads the tensors of a file that all replicas share or that this one owns, and adds their sums to `sums`. If the
/// checkpoint has fewer replicas than the run, replica r reads the tensors of replica r modulo their number.
static void readSaved(const std::string &directory, const std::string &name, const std::vector<Saved> &all,
                      const Trajectory &trajectory, int64_t replicas, const Program &program, int rank, Device &device,
                      TensorSums &sums) {
  const std::string path = directory + "/" + name;
  Safetensors file = Safetensors::open(path);
  int64_t own = program.replicaOf(rank);
  for (const Saved &saved : all) {
    if (saved.replica >= 0 && saved.replica != own % replicas)
      continue;
    if (isMissingScale(saved, (*saved.parts)[0], program, trajectory) || // written with its codes
        isMissingHistory(saved, trajectory))
      continue;
    std::vector<const StoredTensor *> stored;
    for (const Part &part : *saved.parts) {
      std::string name = saved.nameOf(part);
      stored.push_back(&checkStored(saved.inModel ? file.findModelTensor(name) : file.find(name), name, part.shape,
                                    path, file,
                                    /*mayBeCodes=*/!saved.inModel && !saved.inAverage));
    }
    std::vector<TensorSum> read(stored.size());
    if (!readCodes({saved, stored, program, rank, device}, file, directory, trajectory, read))
      readBlock(*saved.tensor, *saved.parameter, *saved.parts, stored, program, rank, device, read);
    if (saved.replica < 0 || saved.replica == own)
      for (size_t i = 0; i < read.size(); ++i)
        sums[saved.nameOf((*saved.parts)[i])] += read[i];
  }
}

/// Throws PCRT_USAGE if a file of an adapter has a tensor that the program's adapter does not have, or has with another
/// shape: the adapter has other targets or another base.
static void checkTargets(const Program &program, const Safetensors &adapter, const std::string &path) {
  std::map<std::string, Dims> own;
  for (const Program *stage : program.stages)
    for (const Parameter &parameter : stage->parameters)
      for (const Part &part : parameter.parts)
        if (parameter.isAdapter())
          own[part.source] = part.shape;
  for (const auto &[name, tensor] : adapter.tensors())
    if (auto found = own.find(name); found == own.end())
      fail(PCRT_USAGE, path + ": tensor '" + name + "' is not part of this program's adapter (" +
                           program.describeAdapter() + "); compile the program with the targets of this adapter");
    else if (found->second != tensor.shape)
      fail(PCRT_USAGE, path + ": tensor '" + name + "' has shape " + describe(tensor.shape) +
                           ", but this program's base needs shape " + describe(found->second) +
                           "; the adapter is of another model");
}

void pcrt::checkModel(const Program &program, const Trajectory &trajectory, const std::string &directory) {
  if (program.hasAdapter())
    checkAdapterConfig(program, directory);
  else if (isThere(directory + "/" + adapterConfigFile))
    fail(PCRT_BAD_DATA, directory + " holds an adapter, but this program was compiled without --lora");
  else
    checkConfig(program, directory);
  if (program.training && trajectory.optimizer != program.optimizer)
    fail(PCRT_BAD_DATA, directory + " was saved with optimizer '" + trajectory.optimizer +
                            "', but this program uses '" + program.optimizer + "'");
}

void pcrt::loadCheckpoint(const std::string &directory, const Trajectory &trajectory, const Program &program,
                          Device &device, Pool &pool, Comm &comm) {
  const std::string modelFile = modelFileOf(program);
  TensorSums model = modelSums(program, program.hasAdapter()), states, means;
  int64_t replicas = std::max<int64_t>(trajectory.replicas, 1), readers = program.rounds.replicas;
  bool between = !program.rounds.any() || program.rounds.endsAfter(trajectory.step);
  for (const Program *stage : program.stages)
    for (const Saved &saved : savedTensors(*stage, trajectory.step, std::min(replicas, readers)))
      for (const Part &part : *saved.parts)
        if (saved.isAverage())
          means[saved.nameOf(part)] = {};
        else if (!saved.inModel && !saved.inAverage && !isMissingScale(saved, part, *stage, trajectory) &&
                 !isMissingHistory(saved, trajectory))
          states[saved.nameOf(part)] = {};
  onAllRanks(comm, [&] {
    if (!between && replicas != readers)
      fail(PCRT_USAGE, directory + " was saved in the middle of a round of " + std::to_string(replicas) +
                           " replicas; to continue with " + std::to_string(readers) +
                           " replicas, use a checkpoint from the end of a round, every " +
                           std::to_string(program.rounds.every) + " steps");
    checkModel(program, trajectory, directory);
    checkSize(directory, modelFile, trajectory);
    if (program.hasAdapter())
      checkTargets(program, Safetensors::open(directory + "/" + modelFile), directory + "/" + modelFile);
    std::vector<Saved> all = savedTensors(program, trajectory.step, replicas), ofModel;
    if (program.rounds.any()) {
      std::copy_if(all.begin(), all.end(), std::back_inserter(ofModel),
                   [](const Saved &saved) { return saved.inModel; });
      readSaved(directory, modelFile, ofModel, trajectory, replicas, program, comm.rank(), device, model);
    } else {
      readParameters(program, Safetensors::open(directory + "/" + modelFile), comm.rank(), device, pool, &model,
                     program.hasAdapter());
    }
    if (program.states.empty())
      return;
    checkSize(directory, stateFile, trajectory);
    if (averages(program)) {
      checkSize(directory, averageFile, trajectory);
      std::vector<Saved> ofMeans;
      std::copy_if(all.begin(), all.end(), std::back_inserter(ofMeans),
                   [](const Saved &saved) { return saved.isAverage(); });
      readSaved(directory, averageFile, ofMeans, trajectory, replicas, program, comm.rank(), device, means);
    }
    std::erase_if(all, [](const Saved &saved) { return saved.inModel || saved.inAverage; });
    readSaved(directory, stateFile, all, trajectory, replicas, program, comm.rank(), device, states);
    if (program.rounds.any() && between)
      takeShared(program, device, comm.rank());
  });
  addUp(model, comm);
  addUp(states, comm);
  addUp(means, comm);
  checkSums(directory, modelFile, trajectory, model);
  checkSums(directory, stateFile, trajectory, states);
  checkSums(directory, averageFile, trajectory, means);
  if (comm.rank() == 0)
    tellConverted(program, trajectory, directory);
}

std::string pcrt::directoryOfWeights(const std::string &path) {
  std::error_code ignored;
  if (path.empty() || fs::is_directory(path, ignored))
    return path;
  std::string directory = fs::path(path).parent_path();
  return directory.empty() ? "." : directory;
}

TensorSums pcrt::loadWeights(const std::string &path, const Program &program, Device &device, Pool &pool, Comm &comm) {
  TensorSums sums = modelSums(program, /*adapter=*/false);
  std::error_code ignored;
  std::string file = fs::is_directory(path, ignored) ? "model.safetensors" : fs::path(path).filename().string();
  std::string directory = directoryOfWeights(path);
  std::optional<Trajectory> trajectory;
  onAllRanks(comm, [&] {
    checkConfig(program, directory);
    if ((file == "model.safetensors" || file == averageFile) && fs::exists(directory + "/" + trajectoryName, ignored))
      trajectory = Trajectory::read(directory);
    Safetensors weights = Safetensors::open(path);
    if (comm.rank() == 0)
      checkTies(program, weights);
    readParameters(program, weights, comm.rank(), device, pool, &sums);
  });
  addUp(sums, comm);
  if (trajectory)
    checkSums(directory, file, *trajectory, sums);
  return sums;
}

void pcrt::loadAdapter(const std::string &directory, const Program &program, Device &device, Pool &pool, Comm &comm) {
  TensorSums sums = modelSums(program, /*adapter=*/true);
  std::optional<Trajectory> trajectory;
  std::string file = modelFileOf(program), path = directory + "/" + file;
  onAllRanks(comm, [&] {
    checkAdapterConfig(program, directory);
    std::error_code ignored;
    if (fs::exists(directory + "/" + trajectoryName, ignored))
      trajectory = Trajectory::read(directory);
    Safetensors adapter = Safetensors::open(path);
    checkTargets(program, adapter, path);
    readParameters(program, adapter, comm.rank(), device, pool, &sums, /*adapter=*/true);
  });
  addUp(sums, comm);
  if (trajectory)
    checkSums(directory, file, *trajectory, sums);
}
