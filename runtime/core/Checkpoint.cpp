//===- Checkpoint.cpp - saving and loading the state of training ----------===//
#include "core/Checkpoint.h"
#include "base/Failure.h"
#include "base/SafetensorsWriter.h"
#include "base/Types.h"
#include "comm/Collective.h"
#include "core/Init.h"
#include "core/Rounds.h"
#include "pcrt/description.h"

#include <cstdio>
#include <filesystem>
#include <unistd.h>

using namespace pcrt;
namespace fs = std::filesystem;

constexpr const char *modelFile = "model.safetensors";
constexpr const char *stateFile = "training_state.safetensors";
constexpr const char *configFile = "config.json";

namespace {

/// A tensor of the program, and where a checkpoint has it.
struct Saved {
  const Tensor *tensor;
  const Parameter *parameter;
  bool inModel;
  std::string prefix;   ///< Of its name; a part's follows.
  int64_t replica = -1; ///< Of local SGD, whose own it is; -1: all have the same.

  std::string nameOf(const Part &part) const { return prefix + part.source; }
};

} // namespace

/// "exp_avg@1."
static std::string ofReplica(const std::string &name, int64_t replica) {
  return name + "@" + std::to_string(replica) + ".";
}

/// What of one program's tensors a checkpoint behind `step` steps has, of a run with so many replicas. Between two
/// rounds of local SGD replicas' parameters are those that all share, which are the model.
static std::vector<Saved> savedTensors(const Program &program, int64_t step, int64_t replicas) {
  std::vector<Saved> saved;
  const Program::Rounds &rounds = program.rounds;
  for (const Parameter &parameter : program.parameters)
    if (!rounds.any())
      saved.push_back({&parameter, &parameter, true, ""});
    else if (!rounds.endsBehind(step))
      for (int64_t replica = 0; replica < replicas; ++replica)
        saved.push_back({&parameter, &parameter, false, ofReplica("parameter", replica), replica});
  for (const State &state : program.states) {
    const Parameter &parameter = program.parameters[state.parameter];
    if (rounds.any() && state.name == PCRT_SHARED)
      saved.push_back({&state, &parameter, true, ""});
    else if (!state.varies)
      saved.push_back({&state, &parameter, false, state.name + "."});
    else
      for (int64_t replica = 0; replica < replicas; ++replica)
        saved.push_back({&state, &parameter, false, ofReplica(state.name, replica), replica});
  }
  return saved;
}

/// Adds up the ranks' parts of every tensor's sum. All ranks have the same names.
static void addUp(TensorSums &sums, Comm &comm) {
  std::vector<TensorSum> mine, all(sums.size() * comm.size());
  for (auto &[name, sum] : sums)
    mine.push_back(sum);
  requireOk(comm, comm.allGatherBytes(mine.data(), int64_t(mine.size() * sizeof mine[0]), all.data()));
  size_t tensor = 0;
  for (auto &[name, sum] : sums) {
    sum = {};
    for (int rank = 0; rank < comm.size(); ++rank)
      sum += all[rank * mine.size() + tensor];
    ++tensor;
  }
}

/// Rank 0's text, of at most 99 characters, on all ranks.
static std::string textOfFirst(Comm &comm, const std::string &text) {
  struct Text {
    char bytes[100];
  };
  Text mine{};
  snprintf(mine.bytes, sizeof mine.bytes, "%s", text.c_str());
  std::vector<Text> all(comm.size());
  requireOk(comm, comm.allGatherBytes(&mine, sizeof mine, all.data()));
  return all[0].bytes;
}

//===----------------------------------------------------------------------===//
// Saving
//===----------------------------------------------------------------------===//

CheckpointWriter::CheckpointWriter(const std::string &to, const TokenizerFiles &tokenizer, Comm &comm)
    : comm(comm), path(plainPath(to)) {
  onAllRanks(comm, [&] {
    if (comm.rank() == 0)
      directory.emplace(to, tokenizer);
  });
  temporary = SaveDirectory::temporaryOf(path, textOfFirst(comm, directory ? directory->tag() : ""));
}

namespace {

/// One file of a checkpoint, which all ranks write together.
class TensorFile {
public:
  TensorFile(const std::string &path, const Program &program, Device &device)
      : writer(path), program(program), device(device) {}

  SafetensorsWriter writer;
  TensorSums sums;

  void add(const std::string &name, const Dims &shape) {
    writer.add(name, shape);
    sums[name] = {};
  }

  /// Makes the file. All tensors have been added.
  void create(Comm &comm) {
    onAllRanks(comm, [&] {
      if (comm.rank() == 0)
        writer.create();
    });
    onAllRanks(comm, [&] {
      if (comm.rank() != 0)
        writer.open();
    });
  }

  /// Writes this rank's block of a tensor, if it is the one that writes it.
  void writeBlock(const Saved &saved, int rank) {
    const Tensor &tensor = *saved.tensor;
    const Parameter &parameter = *saved.parameter;
    bool isOwn = saved.replica < 0 || saved.replica == program.replicaOf(rank);
    if (!isOwn || !program.writes(tensor, parameter, rank))
      return;
    Block block = blockOf(program.mesh, tensor.shape, tensor.layout, rank);
    HostBlock host(device, tensor.offset, block.elements() * elementBytes(tensor.dtype), HostBlock::Read);
    for (const Part &part : parameter.parts) {
      std::string name = saved.nameOf(part);
      if (writer.write(writer.placeOf(name), part.size, part.inPart(block), part.box, tensor.dtype, host.data(),
                       &sums[name]) != PCRT_OK)
        fail(PCRT_RESOURCE, withErrno("cannot write " + writer.file()));
    }
  }

  void sync() {
    writer.sync();
    writer.close();
  }

  /// Notes the size of the whole file and its sums, over all ranks, in `trajectory`.
  void note(const std::string &name, Comm &comm, Trajectory &trajectory) {
    trajectory.files[name] = writer.bytes();
    addUp(sums, comm);
    for (auto &[tensor, sum] : sums)
      trajectory.tensors[name][tensor] = {writer.shapeOf(tensor), sum.text()};
  }

private:
  const Program &program;
  Device &device;
};

} // namespace

/// A checkpoint that is being written.
struct CheckpointWriter::Files {
  Files(const std::string &directory, const Program &program, const Trajectory &trajectory, Device &device)
      : program(program), trajectory(trajectory), model(directory + "/" + modelFile, program, device),
        training(directory + "/" + stateFile, program, device) {
    model.writer.addMetadata("format", "pt");
    training.writer.addMetadata("step", std::to_string(trajectory.step));
    training.writer.addMetadata("optimizer", program.optimizer);
    for (const Program *stage : program.stages)
      for (const Saved &saved : savedTensors(*stage, trajectory.step, program.rounds.replicas))
        for (const Part &part : saved.parameter->parts)
          (saved.inModel ? model : training).add(saved.nameOf(part), part.shape);
  }

  void writeBlocks(int rank) {
    for (const Saved &saved : savedTensors(program, trajectory.step, program.rounds.replicas))
      (saved.inModel ? model : training).writeBlock(saved, rank);
    model.sync();
    training.sync();
  }

  const Program &program;
  Trajectory trajectory;
  TensorFile model, training;
  std::optional<Failure> failure; ///< Of this rank's blocks.
};

CheckpointWriter::~CheckpointWriter() {
  if (files && directory)
    directory->discard();
}

/// Rethrows a failure, with what is left.
void CheckpointWriter::giveUp(const Failure &failure) {
  files.reset();
  if (directory && !directory->committed())
    directory->discard();
  if (failure.status != PCRT_RESOURCE)
    throw failure;
  // Only rank 0 knows which checkpoint is on the disk now; any rank may be the one whose message is shown.
  const char *left = !directory               ? ""
                     : directory->committed() ? "the new one has taken its place, but may not be on the disk yet"
                     : older                  ? "the older one is as it was"
                                              : "nothing was saved";
  fail(PCRT_RESOURCE,
       "saving the checkpoint failed: " + failure.message + "; " + path + ": " + textOfFirst(comm, left));
}

void CheckpointWriter::begin(const Program &program, const Trajectory &trajectory, Device &device) {
  older = directory && directory->hasOlder();
  try {
    onAllRanks(comm, [&] {
      if (directory)
        directory->begin();
    });
    files = std::make_unique<Files>(temporary, program, trajectory, device);
    files->model.create(comm);
    files->training.create(comm);
  } catch (const Failure &failure) {
    giveUp(failure);
  }
}

void CheckpointWriter::writeBlocks() {
  try {
    files->writeBlocks(comm.rank());
  } catch (const Failure &failure) {
    files->failure = failure;
  } catch (const std::bad_alloc &) {
    files->failure = Failure{PCRT_RESOURCE, "out of memory"};
  }
}

void CheckpointWriter::finish() {
  try {
    onAllRanks(comm, [&] {
      if (files->failure)
        throw *files->failure;
    });
    Trajectory trajectory = files->trajectory;
    files->model.note(modelFile, comm, trajectory);
    files->training.note(stateFile, comm, trajectory);
    onAllRanks(comm, [&] {
      if (!directory)
        return;
      TokenizerFiles texts = directory->tokenizer();
      texts[configFile] = files->program.config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
      for (auto &[name, text] : texts) {
        writeSynced(temporary + "/" + name, text);
        trajectory.files[name] = int64_t(text.size());
      }
      writeSynced(temporary + "/" + trajectoryName, trajectory.text());
      directory->commit();
    });
    files.reset();
  } catch (const Failure &failure) {
    giveUp(failure);
  }
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

/// Throws unless the file has as many bytes as when it was saved.
static void checkSize(const std::string &directory, const std::string &name, const Trajectory &trajectory) {
  std::string path = directory + "/" + name;
  std::error_code error;
  int64_t bytes = int64_t(fs::file_size(path, error));
  auto saved = trajectory.files.find(name);
  if (error)
    fail(PCRT_BAD_DATA, "cannot read " + path + ": " + error.message());
  if (saved == trajectory.files.end() || saved->second != bytes)
    fail(PCRT_BAD_DATA, path + " is not the file that " + trajectoryName + " beside it tells of: it has " +
                            std::to_string(bytes) + " bytes" +
                            (saved == trajectory.files.end() ? "" : ", not " + std::to_string(saved->second)));
}

/// Compares what the ranks have read of the tensors of a file with what was saved. All ranks throw the same.
static void checkSums(const std::string &directory, const std::string &file, const Trajectory &trajectory,
                      TensorSums sums, Comm &comm) {
  addUp(sums, comm);
  auto records = trajectory.tensors.find(file);
  for (auto &[name, sum] : sums) {
    const TensorRecord *record = nullptr;
    if (records != trajectory.tensors.end())
      if (auto found = records->second.find(name); found != records->second.end())
        record = &found->second;
    if (!record || record->sum != sum.text())
      fail(PCRT_BAD_DATA, directory + "/" + file + ": tensor '" + name + "' is not what was saved: " +
                              (record ? "its sum is " + sum.text() + ", it was " + record->sum
                                      : std::string(trajectoryName) + " does not know it"));
  }
}

/// The tensors of the model, in all stages.
static TensorSums modelSums(const Program &program) {
  TensorSums sums;
  for (const Program *stage : program.stages)
    for (const Parameter &parameter : stage->parameters)
      for (const Part &part : parameter.parts)
        sums[part.source] = {};
  return sums;
}

/// Reads tensors of a file, this replica's own or what all share, adding to `sums`. Where fewer replicas have saved,
/// others take theirs in turn.
static void readSaved(const std::string &path, const std::vector<Saved> &all, int64_t replicas, const Program &program,
                      int rank, Device &device, TensorSums &sums) {
  Safetensors file = Safetensors::open(path);
  int64_t own = program.replicaOf(rank);
  for (const Saved &saved : all) {
    if (saved.replica >= 0 && saved.replica != own % replicas)
      continue;
    std::vector<const StoredTensor *> stored;
    for (const Part &part : saved.parameter->parts) {
      std::string name = saved.nameOf(part);
      stored.push_back(
          &checkStored(saved.inModel ? file.findModelTensor(name) : file.find(name), name, part.shape, path));
    }
    std::vector<TensorSum> read(stored.size());
    readBlock(*saved.tensor, *saved.parameter, stored, program, rank, device, read);
    if (saved.replica < 0 || saved.replica == own)
      for (size_t i = 0; i < read.size(); ++i)
        sums[saved.nameOf(saved.parameter->parts[i])] += read[i];
  }
}

void pcrt::checkModel(const Program &program, const Trajectory &trajectory, const std::string &directory) {
  checkConfig(program, directory);
  if (program.training && trajectory.optimizer != program.optimizer)
    fail(PCRT_BAD_DATA, directory + " was saved by optimizer '" + trajectory.optimizer + "', this program runs '" +
                            program.optimizer + "'");
}

void pcrt::loadCheckpoint(const std::string &directory, const Trajectory &trajectory, const Program &program,
                          Device &device, Pool &pool, Comm &comm) {
  TensorSums model = modelSums(program), states;
  int64_t replicas = std::max<int64_t>(trajectory.replicas, 1), readers = program.rounds.replicas;
  bool between = !program.rounds.any() || program.rounds.endsBehind(trajectory.step);
  for (const Program *stage : program.stages)
    for (const Saved &saved : savedTensors(*stage, trajectory.step, std::min(replicas, readers)))
      for (const Part &part : saved.parameter->parts)
        if (!saved.inModel)
          states[saved.nameOf(part)] = {};
  onAllRanks(comm, [&] {
    if (!between && replicas != readers)
      fail(PCRT_USAGE, directory + " is from the middle of a round of " + std::to_string(replicas) +
                           " replicas; with " + std::to_string(readers) +
                           " a run goes on from between two rounds, every " + std::to_string(program.rounds.every) +
                           " steps");
    checkModel(program, trajectory, directory);
    checkSize(directory, modelFile, trajectory);
    std::vector<Saved> all = savedTensors(program, trajectory.step, replicas), ofModel;
    if (program.rounds.any()) {
      std::copy_if(all.begin(), all.end(), std::back_inserter(ofModel),
                   [](const Saved &saved) { return saved.inModel; });
      readSaved(directory + "/" + modelFile, ofModel, replicas, program, comm.rank(), device, model);
    } else {
      readParameters(program, Safetensors::open(directory + "/" + modelFile), comm.rank(), device, pool, &model);
    }
    if (program.states.empty())
      return;
    checkSize(directory, stateFile, trajectory);
    std::erase_if(all, [](const Saved &saved) { return saved.inModel; });
    readSaved(directory + "/" + stateFile, all, replicas, program, comm.rank(), device, states);
    if (program.rounds.any() && between)
      takeShared(program, device, comm.rank());
  });
  checkSums(directory, modelFile, trajectory, model, comm);
  checkSums(directory, stateFile, trajectory, states, comm);
}

std::string pcrt::directoryOfWeights(const std::string &path) {
  std::error_code ignored;
  if (path.empty() || fs::is_directory(path, ignored))
    return path;
  std::string directory = fs::path(path).parent_path();
  return directory.empty() ? "." : directory;
}

void pcrt::loadWeights(const std::string &path, const Program &program, Device &device, Pool &pool, Comm &comm) {
  TensorSums sums = modelSums(program);
  std::error_code ignored;
  bool isDirectory = fs::is_directory(path, ignored);
  std::string directory = directoryOfWeights(path);
  std::optional<Trajectory> trajectory;
  onAllRanks(comm, [&] {
    checkConfig(program, directory);
    if ((isDirectory || fs::path(path).filename() == modelFile) &&
        fs::exists(directory + "/" + trajectoryName, ignored))
      trajectory = Trajectory::read(directory);
    Safetensors weights = Safetensors::open(path);
    if (comm.rank() == 0)
      checkTies(program, weights);
    readParameters(program, weights, comm.rank(), device, pool, &sums);
  });
  if (trajectory)
    checkSums(directory, modelFile, *trajectory, sums, comm);
}
