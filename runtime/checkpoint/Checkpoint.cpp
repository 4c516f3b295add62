//===- Checkpoint.cpp - Saving and loading the state of training ----------===//
// Saving: every tensor of the model goes to model.safetensors under its Hugging Face name, and every optimizer state to
// training_state.safetensors, as f32 or as codes. Ranks that hold the same block divide it by pages of the file. Each
// rank adds up the checksums of the elements that it writes. Rank 0 writes the totals to trajectory.json last, and then
// exchanges the new directory with DIR.
// Loading: every rank reads its own blocks and adds up their checksums, and all compare the totals with
// trajectory.json.
//===----------------------------------------------------------------------===//
#include "checkpoint/Checkpoint.h"
#include "base/Failure.h"
#include "base/SafetensorsWriter.h"
#include "base/SignalMask.h"
#include "base/Types.h"
#include "checkpoint/AdapterConfig.h"
#include "checkpoint/ConfigText.h"
#include "checkpoint/SavedTensors.h"
#include "comm/Collective.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace pcrt;
namespace fs = std::filesystem;

/// Returns the text of rank 0, of at most 99 characters, on all ranks.
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

CheckpointWriter::CheckpointWriter(const std::string &to, const TokenizerFiles &tokenizer, Comm &comm)
    : comm(comm), path(plainPath(to)) {
  onAllRanks(comm, [&] {
    if (comm.rank() == 0)
      directory.emplace(to, tokenizer);
  });
  temporary = SaveDirectory::temporaryOf(path, textOfFirst(comm, directory ? directory->tag() : ""));
}

int64_t pcrt::checkpointBytes(const Program &program) {
  constexpr int64_t perTensor = 256, perFile = 4096; // for headers and trajectory.json; for the end of the last block
  int64_t bytes = perFile * int64_t(std::size(checkpointFiles));
  for (const Program *stage : program.stages)
    for (const Saved &saved : savedTensors(*stage, /*step=*/1, program.rounds.replicas))
      bytes += 4 * product(saved.tensor->shape) + perTensor * int64_t(saved.parts->size());
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
  TensorFile(const std::string &path, const Program &program, Device &device,
             const CheckpointWriter::PartOfArena &onHost)
      : writer(path), program(program), device(device), onHost(onHost) {}

  using Sources = std::map<std::string, std::vector<Source>>;

  SafetensorsWriter writer;
  Sources sources; ///< The parts that this rank writes of each tensor.
  TensorSums sums; ///< The sums of these parts.

  void add(const std::string &name, const Dims &shape, int32_t dtype) {
    writer.add(name, shape, dtype);
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
      return std::clamp<int64_t>((at - place) / writer.widthOf(tensor), 0, count);
    };
    return {bound(holder.index), bound(holder.index + 1)};
  }

  /// An upper bound of the bytes that this rank writes of a tensor.
  int64_t bytesOf(const std::string &tensor, const std::vector<Source> &sources) const {
    int64_t most = 0;
    for (const Source &source : sources) {
      auto [begin, end] = shareOf(tensor, source.holder);
      most = std::max(most, writer.widthOf(tensor) * (end - begin));
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
      const char *data =
          onHost ? onHost(from.offset)
                 : hosts.emplace_back(device, from.offset, block.elements() * bytes, HostBlock::Read).data();
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
      requireGood(stream.write(place + writer.widthOf(tensor) * piece.first, piece.elements, piece.dtype, piece.count,
                               &sum, piece.first));
  }

  void flush(FileStream &stream) const { requireGood(stream.flush()); }

  void sync() {
    writer.sync();
    writer.close();
  }

  /// Records the size of the whole file and its sums over all ranks in `trajectory`.
  void note(const std::string &name, Comm &comm, Trajectory &trajectory) {
    trajectory.files[name] = writer.bytes();
    addUp(sums, comm);
    for (auto &[tensor, sum] : sums)
      trajectory.tensors[name][tensor] = {writer.shapeOf(tensor), sum.text(), writer.dtypeOf(tensor)};
  }

private:
  static constexpr int64_t page = 4096;

  void requireGood(bool good) const {
    if (!good)
      fail(PCRT_RESOURCE, withErrno("cannot write " + writer.file()));
  }

  const Program &program;
  Device &device;
  const CheckpointWriter::PartOfArena &onHost;
};

} // namespace

/// A checkpoint that is being written: its files of tensors and the trajectory to which their sums go.
struct CheckpointWriter::Files {
  Files(const std::string &directory, const Program &program, const Trajectory &trajectory, Device &device,
        PartOfArena part, int rank)
      : program(program), trajectory(trajectory), rank(rank), onHost(std::move(part)),
        model(directory + "/" + modelFileOf(program), program, device, onHost),
        training(directory + "/" + stateFile, program, device, onHost),
        average(directory + "/" + averageFile, program, device, onHost) {
    all = {{modelFileOf(program), &model}, {stateFile, &training}};
    if (averages(program))
      all.push_back({averageFile, &average});
    average.writer.addMetadata("format", "pt");
    model.writer.addMetadata("format", "pt");
    training.writer.addMetadata("step", std::to_string(trajectory.step));
    training.writer.addMetadata("optimizer", program.optimizer);
    for (const Program *stage : program.stages)
      for (const Saved &saved : savedTensors(*stage, trajectory.step, program.rounds.replicas))
        for (const Part &part : *saved.parts) {
          TensorFile &file = saved.inModel ? model : saved.inAverage ? average : training;
          file.add(saved.nameOf(part), part.shape, saved.tensor->dtype);
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
    for (auto &[name, file] : all)
      addStretches(*file, stretches);
    std::atomic<size_t> next = 0;
    Lane lanes[2];
    for (size_t lane = 0; lane < std::size(lanes); ++lane)
      for (auto &[name, file] : all)
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
    for (auto &[name, file] : all)
      file->sync();
  }

  const Program &program;
  Trajectory trajectory;
  int rank;
  const PartOfArena onHost;
  TensorFile model, training, average;
  std::vector<std::pair<std::string, TensorFile *>> all; ///< The tensors of the checkpoint, by name.
  std::optional<Failure> failure;                        ///< The failure of writing this rank's blocks.

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

  /// Takes and writes stretches that no other thread has taken, until none is left.
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

/// Rethrows a failure; if it is PCRT_RESOURCE, the message names the checkpoint that is left.
void CheckpointWriter::giveUp(const Failure &failure) {
  files.reset();
  if (directory && !directory->committed())
    directory->discard();
  if (failure.status != PCRT_RESOURCE)
    throw failure;
  // Only rank 0 knows which checkpoint is on the disk now, but the message of any rank may be shown.
  const char *left = !directory               ? ""
                     : directory->committed() ? "the new checkpoint has replaced it, but may not be on disk yet"
                     : older                  ? "the older checkpoint is unchanged"
                                              : "nothing was saved";
  fail(PCRT_RESOURCE,
       "saving the checkpoint failed: " + failure.message + "; " + path + ": " + textOfFirst(comm, left));
}

void CheckpointWriter::begin(const Program &program, const Trajectory &trajectory, Device &device, PartOfArena onHost) {
  older = directory && directory->hasOlder();
  try {
    onAllRanks(comm, [&] {
      if (directory)
        directory->begin();
    });
    files = std::make_unique<Files>(temporary, program, trajectory, device, std::move(onHost), comm.rank());
    for (auto &[name, file] : files->all)
      file->create(comm);
  } catch (const Failure &failure) {
    giveUp(failure);
  }
}

void CheckpointWriter::writeBlocks(const std::function<void()> &ready) {
  try {
    if (ready)
      ready();
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
    for (auto &[name, file] : files->all)
      file->note(name, comm, trajectory);
    onAllRanks(comm, [&] {
      if (!directory)
        return;
      TokenizerFiles texts = directory->tokenizer();
      if (files->program.hasAdapter())
        texts[adapterConfigFile] = adapterConfig(files->program, trajectory);
      else
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
