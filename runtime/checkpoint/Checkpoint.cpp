//===- Checkpoint.cpp - Saving and loading the state of training ----------===//
// Saving: every tensor of the model is in model.safetensors under its Hugging Face name, every optimizer state in
// training_state.safetensors, both as f32. Ranks that hold the same block divide it by pages of the file. Each rank
// adds up the checksums of what it writes; rank 0 writes the totals to trajectory.json last and then exchanges the new
// directory with DIR. Loading: every rank reads its own blocks, adds up their checksums, and all compare the totals
// with trajectory.json.
//===----------------------------------------------------------------------===//
#include "checkpoint/Checkpoint.h"
#include "base/Failure.h"
#include "base/SafetensorsWriter.h"
#include "base/SignalMask.h"
#include "base/Types.h"
#include "checkpoint/ConfigText.h"
#include "comm/Collective.h"
#include "data/Init.h"
#include "pcrt/description.h"
#include "replicas/Rounds.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace pcrt;
namespace fs = std::filesystem;

constexpr const char *modelFile = "model.safetensors";
constexpr const char *stateFile = "training_state.safetensors";
constexpr const char *configFile = "config.json";

namespace {

/// A tensor of the program and its place in a checkpoint.
struct Saved {
  const Tensor *tensor;
  const Parameter *parameter;
  bool inModel;
  std::string prefix;   ///< Of its name; a part's follows.
  int64_t replica = -1; ///< The replica of local SGD that owns it; -1: all share it.

  std::string nameOf(const Part &part) const { return prefix + part.source; }
};

} // namespace

/// "exp_avg@1."
static std::string ofReplica(const std::string &name, int64_t replica) {
  return name + "@" + std::to_string(replica) + ".";
}

/// The tensors of one program that a checkpoint after `step` steps has, in a run with `replicas` replicas. Between two
/// rounds of local SGD, the checkpoint has the parameters that all replicas share: they are the model.
static std::vector<Saved> savedTensors(const Program &program, int64_t step, int64_t replicas) {
  std::vector<Saved> saved;
  const Program::Rounds &rounds = program.rounds;
  for (const Parameter &parameter : program.parameters)
    if (!rounds.any() || parameter.frozen)
      saved.push_back({&parameter, &parameter, true, ""});
    else if (!rounds.endsAfter(step))
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

int64_t pcrt::checkpointBytes(const Program &program) {
  constexpr int64_t perTensor = 256, perFile = 4096; // what headers and trajectory.json say; the end of a last block
  int64_t bytes = perFile * int64_t(std::size(checkpointFiles));
  for (const Program *stage : program.stages)
    for (const Saved &saved : savedTensors(*stage, /*step=*/1, program.rounds.replicas))
      bytes += 4 * product(saved.tensor->shape) + perTensor * int64_t(saved.parameter->parts.size());
  return bytes;
}

void pcrt::requireRoom(const std::string &directory, int64_t bytes, const std::string &what,
                       const std::string &remedy) {
  std::error_code error;
  fs::path there = fs::absolute(directory, error);
  while (!fs::exists(there, error) && there.has_relative_path())
    there = there.parent_path();
  fs::space_info space = fs::space(there, error);
  if (error || int64_t(space.available) >= bytes)
    return;
  auto size = [](int64_t bytes) {
    return bytes >> 20 ? std::to_string(bytes >> 20) + " MiB" : std::to_string(bytes >> 10) + " KiB";
  };
  fail(PCRT_RESOURCE, "not enough disk space in " + directory + " for " + what + ": " + size(bytes) +
                          " are needed, but only " + size(int64_t(space.available)) + " are free; " + remedy);
}

void CheckpointWriter::requireRoomFor(const Program &program) {
  onAllRanks(comm, [&] {
    if (directory)
      requireRoom(fs::path(path).parent_path().empty() ? "." : fs::path(path).parent_path().string(),
                  checkpointBytes(program), "the checkpoint that --save writes",
                  "free some space, or save to another directory");
  });
}

namespace {

/// The part of a file's tensor that a rank holds: a box of it, or a part of a box.
struct Source {
  const Tensor *tensor;
  const Part *part;
  Holder holder; ///< Other ranks may hold the same.
};

/// One file of a checkpoint, which all ranks write together. All ranks add the same tensors, then create the file; then
/// threads of a rank may write, each to a stream of its own. Throws PCRT_RESOURCE if the file cannot be written.
class TensorFile {
public:
  TensorFile(const std::string &path, const Program &program, Device &device)
      : writer(path), program(program), device(device) {}

  using Sources = std::map<std::string, std::vector<Source>>;

  SafetensorsWriter writer;
  Sources sources; ///< By tensor: what this rank writes.
  TensorSums sums; ///< Of that.

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

  /// The elements [first, last) of a tensor that this holder writes. The holders divide the file into shares, which
  /// begin and end at pages, so that no two holders write to one page.
  std::pair<int64_t, int64_t> shareOf(const std::string &tensor, const Holder &holder) const {
    int64_t place = writer.placeOf(tensor), count = product(writer.shapeOf(tensor));
    auto bound = [&](int64_t index) {
      int64_t at = index == holder.count ? writer.bytes() : writer.bytes() * index / holder.count / page * page;
      return std::clamp<int64_t>((at - place) / 4, 0, count);
    };
    return {bound(holder.index), bound(holder.index + 1)};
  }

  /// An upper bound of the bytes that this rank writes of a tensor.
  int64_t bytesOf(const std::string &tensor, const std::vector<Source> &sources) const {
    int64_t most = 0;
    for (const Source &source : sources) {
      auto [begin, end] = shareOf(tensor, source.holder);
      most = std::max(most, 4 * (end - begin));
    }
    return most;
  }

  /// Writes this rank's elements of a tensor, in the order of the file, and adds them to `sum`.
  void write(const std::string &tensor, const std::vector<Source> &sources, int rank, FileStream &stream,
             TensorSum &sum) const {
    struct Piece {
      int64_t first, count;
      const char *elements;
      int32_t dtype;
    };
    std::vector<Piece> pieces;
    std::vector<HostBlock> hosts;
    hosts.reserve(sources.size());
    for (const Source &source : sources) {
      const Tensor &from = *source.tensor;
      auto [begin, end] = shareOf(tensor, source.holder);
      if (begin == end)
        continue;
      Block block = blockOf(program.mesh, from.shape, from.layout, rank);
      int64_t bytes = elementBytes(from.dtype);
      const char *data = hosts.emplace_back(device, from.offset, block.elements() * bytes, HostBlock::Read).data();
      forEachPiece(source.part->size, source.part->inPart(block), source.part->box,
                   [&, begin = begin, end = end](int64_t blockOffset, int64_t tensorOffset, int64_t count) {
                     int64_t first = std::max(tensorOffset, begin), last = std::min(tensorOffset + count, end);
                     if (first < last)
                       pieces.push_back(
                           {first, last - first, data + (blockOffset + first - tensorOffset) * bytes, from.dtype});
                   });
    }
    std::sort(pieces.begin(), pieces.end(), [](const Piece &a, const Piece &b) { return a.first < b.first; });
    int64_t place = writer.placeOf(tensor);
    for (const Piece &piece : pieces)
      requireGood(stream.write(place + 4 * piece.first, piece.elements, piece.dtype, piece.count, &sum, piece.first));
  }

  void flush(FileStream &stream) const { requireGood(stream.flush()); }

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
  static constexpr int64_t page = 4096;

  void requireGood(bool good) const {
    if (!good)
      fail(PCRT_RESOURCE, withErrno("cannot write " + writer.file()));
  }

  const Program &program;
  Device &device;
};

} // namespace

/// A checkpoint that is being written: its two files of tensors and the trajectory to which their sums go.
struct CheckpointWriter::Files {
  Files(const std::string &directory, const Program &program, const Trajectory &trajectory, Device &device, int rank)
      : program(program), trajectory(trajectory), rank(rank), model(directory + "/" + modelFile, program, device),
        training(directory + "/" + stateFile, program, device) {
    model.writer.addMetadata("format", "pt");
    training.writer.addMetadata("step", std::to_string(trajectory.step));
    training.writer.addMetadata("optimizer", program.optimizer);
    for (const Program *stage : program.stages)
      for (const Saved &saved : savedTensors(*stage, trajectory.step, program.rounds.replicas))
        for (const Part &part : saved.parameter->parts) {
          TensorFile &file = saved.inModel ? model : training;
          file.add(saved.nameOf(part), part.shape);
          bool isOwn = saved.replica < 0 || saved.replica == program.replicaOf(rank);
          if (stage != &program || !isOwn)
            continue;
          if (std::optional<Holder> holder = program.holderOf(*saved.tensor, *saved.parameter, rank))
            file.sources[saved.nameOf(part)].push_back({saved.tensor, &part, *holder});
        }
  }

  /// Writes this rank's elements of both files. If they are many, two threads write: one computes sums while the pages
  /// of the other are on their way to the disk.
  void writeBlocks() {
    std::vector<Stretch> stretches;
    for (TensorFile *file : {&model, &training})
      addStretches(*file, stretches);
    std::atomic<size_t> next = 0;
    Lane lanes[2];
    for (size_t lane = 0; lane < std::size(lanes); ++lane)
      for (TensorFile *file : {&model, &training})
        file->writer.stream(lane);
    std::thread other;
    if (stretches.size() > std::size(lanes)) {
      SignalsMasked masked;
      other = std::thread([&] { writeSome(stretches, next, lanes[1], 1); });
    }
    writeSome(stretches, next, lanes[0], 0);
    if (other.joinable())
      other.join();
    for (Lane &lane : lanes) {
      if (lane.failure)
        throw *lane.failure;
      for (auto &[file, sums] : lane.sums)
        for (auto &[tensor, sum] : sums)
          file->sums[tensor] += sum;
    }
    model.sync();
    training.sync();
  }

  const Program &program;
  Trajectory trajectory;
  int rank;
  TensorFile model, training;
  std::optional<Failure> failure; ///< Of this rank's blocks.

private:
  /// Tensors that are neighbours in a file.
  struct Stretch {
    TensorFile *file;
    std::vector<const TensorFile::Sources::value_type *> tensors;
  };

  /// The result of one thread.
  struct Lane {
    std::map<TensorFile *, TensorSums> sums;
    std::optional<Failure> failure;
  };

  static void addStretches(TensorFile &file, std::vector<Stretch> &stretches) {
    constexpr int64_t enough = 32 << 20;
    int64_t bytes = enough;
    for (const auto &entry : file.sources) {
      int64_t more = file.bytesOf(entry.first, entry.second);
      if (more == 0)
        continue;
      if (bytes >= enough) {
        stretches.push_back({&file, {}});
        bytes = 0;
      }
      stretches.back().tensors.push_back(&entry);
      bytes += more;
    }
  }

  /// Writes one stretch after another that no other thread has taken.
  void writeSome(const std::vector<Stretch> &stretches, std::atomic<size_t> &next, Lane &lane, size_t number) const {
    try {
      for (size_t i; (i = next++) < stretches.size();) {
        TensorFile &file = *stretches[i].file;
        FileStream &stream = file.writer.stream(number);
        for (auto *entry : stretches[i].tensors)
          file.write(entry->first, entry->second, rank, stream, lane.sums[&file][entry->first]);
        file.flush(stream);
      }
    } catch (const Failure &failure) {
      lane.failure = failure;
    } catch (const std::bad_alloc &) {
      lane.failure = Failure{PCRT_RESOURCE, "out of memory"};
    }
  }
};

CheckpointWriter::~CheckpointWriter() {
  if (files && directory)
    directory->discard();
}

/// Rethrows a failure; if it is PCRT_RESOURCE, says which checkpoint is left.
void CheckpointWriter::giveUp(const Failure &failure) {
  files.reset();
  if (directory && !directory->committed())
    directory->discard();
  if (failure.status != PCRT_RESOURCE)
    throw failure;
  // Only rank 0 knows which checkpoint is on the disk now; any rank may be the one whose message is shown.
  const char *left = !directory               ? ""
                     : directory->committed() ? "the new checkpoint has replaced it, but may not be on disk yet"
                     : older                  ? "the older checkpoint is unchanged"
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
    files = std::make_unique<Files>(temporary, program, trajectory, device, comm.rank());
    files->model.create(comm);
    files->training.create(comm);
  } catch (const Failure &failure) {
    giveUp(failure);
  }
}

void CheckpointWriter::writeBlocks() {
  try {
    files->writeBlocks();
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
      texts[configFile] = configWithDtype(files->program.config, "float32"); // as SafetensorsWriter stores all
      for (auto &[name, text] : texts) {
        std::string inner = temporary + "/" + fs::path(name).parent_path().string();
        if (inner.back() != '/' && mkdir(inner.c_str(), 0777) != 0 && errno != EEXIST)
          fail(PCRT_RESOURCE, withErrno("cannot make " + inner));
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
    fail(PCRT_BAD_DATA, path + " is not the file described by " + trajectoryName + " in the same directory: it has " +
                            std::to_string(bytes) + " bytes" +
                            (saved == trajectory.files.end() ? "" : ", not " + std::to_string(saved->second)));
}

/// Compares the sums of the tensors that the ranks have read from a file with those that were saved. All ranks throw
/// the same failure.
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
      fail(PCRT_BAD_DATA, directory + "/" + file + ": tensor '" + name + "' was changed after it was saved: " +
                              (record ? "its checksum is " + sum.text() + ", but was " + record->sum
                                      : std::string(trajectoryName) + " does not list it"));
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

/// Reads those tensors of a file that all replicas share or this one owns, and adds to `sums`. If the checkpoint has
/// fewer replicas than the run, replica r reads the tensors of replica r modulo their number.
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
          &checkStored(saved.inModel ? file.findModelTensor(name) : file.find(name), name, part.shape, path, file));
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
    fail(PCRT_BAD_DATA, directory + " was saved with optimizer '" + trajectory.optimizer +
                            "', but this program uses '" + program.optimizer + "'");
}

void pcrt::loadCheckpoint(const std::string &directory, const Trajectory &trajectory, const Program &program,
                          Device &device, Pool &pool, Comm &comm) {
  TensorSums model = modelSums(program), states;
  int64_t replicas = std::max<int64_t>(trajectory.replicas, 1), readers = program.rounds.replicas;
  bool between = !program.rounds.any() || program.rounds.endsAfter(trajectory.step);
  for (const Program *stage : program.stages)
    for (const Saved &saved : savedTensors(*stage, trajectory.step, std::min(replicas, readers)))
      for (const Part &part : saved.parameter->parts)
        if (!saved.inModel)
          states[saved.nameOf(part)] = {};
  onAllRanks(comm, [&] {
    if (!between && replicas != readers)
      fail(PCRT_USAGE, directory + " was saved in the middle of a round of " + std::to_string(replicas) +
                           " replicas; to continue with " + std::to_string(readers) +
                           " replicas, use a checkpoint from the end of a round, every " +
                           std::to_string(program.rounds.every) + " steps");
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
