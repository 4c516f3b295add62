//===- Checkpoint.cpp - saving and loading the state of training ----------===//
#include "core/Checkpoint.h"
#include "core/Collective.h"
#include "core/Failure.h"
#include "core/Init.h"
#include "core/SafetensorsWriter.h"
#include "device/Gemm.h"

#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

using namespace pcrt;
namespace fs = std::filesystem;

static std::string stateName(const Program &program, const State &state) {
  return state.name + "." + program.parameters[state.parameter].source;
}

/// "a/b/" and "a/b" name the same directory, and so does a link to it: what it leads to is replaced, not the link.
static std::string plainPath(std::string path) {
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  std::error_code error;
  fs::path target = fs::is_symlink(path, error) ? fs::canonical(path, error) : fs::path();
  return target.empty() ? path : target.string();
}

/// Removes a directory that a save has made or taken the place of. Files in it that are none of a checkpoint's are
/// somebody's own: they move to `home`; what cannot move stays, and is told.
static void removeOurs(const std::string &directory, const std::string &home) {
  std::error_code error;
  std::string kept;
  for (const fs::directory_entry &entry : fs::directory_iterator(directory, error)) {
    std::string name = entry.path().filename().string();
    if (name == "config.json" || name == "model.safetensors" || name == "training_state.safetensors")
      continue;
    fs::path there = fs::path(home) / name;
    if (fs::exists(there, error) || rename(entry.path().c_str(), there.c_str()) != 0)
      kept = name;
  }
  if (!kept.empty())
    fail(PCRT_RESOURCE, directory + " is in the way: '" + kept + "' in it is not from a checkpoint");
  fs::remove_all(directory, error);
}

void pcrt::checkSaveDirectory(const std::string &directory, Comm &comm) {
  onAllRanks(comm, [&] {
    if (comm.rank() != 0)
      return;
    std::string path = plainPath(directory);
    std::error_code error;
    auto refuse = [&](const std::string &why) { fail(PCRT_RESOURCE, "cannot save to " + path + ": " + why); };
    if (fs::exists(path, error)) {
      if (!fs::is_directory(path, error))
        refuse("it is not a directory");
      // A save puts a new directory in the place of this one. Found out now, not after the last step.
      fs::path own = fs::canonical(path, error), here = fs::current_path(error);
      if (std::mismatch(own.begin(), own.end(), here.begin(), here.end()).first == own.end())
        refuse("the program runs in it; name a directory in it, as in " + path + "/checkpoint");
      struct stat it, parent;
      if (stat(own.c_str(), &it) == 0 && stat(own.parent_path().c_str(), &parent) == 0 && it.st_dev != parent.st_dev)
        refuse("it is a mount point; name a directory in it, as in " + path + "/checkpoint");
    }
    fs::create_directories(path + ".tmp", error);
    if (error)
      refuse(error.message());
    removeOurs(path + ".tmp", path);
  });
}

/// Writes a small file and brings it to the disk.
static void writeFile(const std::string &path, const std::string &text) {
  FILE *file = fopen(path.c_str(), "we");
  bool good =
      file && fwrite(text.data(), 1, text.size(), file) == text.size() && fflush(file) == 0 && fsync(fileno(file)) == 0;
  std::string message = withErrno("cannot write " + path);
  if (file && fclose(file) != 0)
    good = false;
  if (!good)
    fail(PCRT_RESOURCE, message);
}

static void syncDirectory(const std::string &path) {
  int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    fsync(fd);
    close(fd);
  }
}

/// Puts the complete directory `from` in the place of `to`.
static void takePlace(const std::string &from, const std::string &to) {
  syncDirectory(from);
  std::error_code error;
  if (!fs::exists(to, error)) {
    if (rename(from.c_str(), to.c_str()) != 0)
      fail(PCRT_RESOURCE, withErrno("cannot rename " + from + " to " + to));
  } else if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    removeOurs(from, to); // the old checkpoint, now under the other name
  } else {
    // File systems that cannot exchange: the old checkpoint keeps another name for a moment.
    std::string old = to + ".old";
    fs::remove_all(old, error);
    if (rename(to.c_str(), old.c_str()) != 0 || rename(from.c_str(), to.c_str()) != 0)
      fail(PCRT_RESOURCE, withErrno("cannot rename " + from + " to " + to));
    removeOurs(old, to);
  }
  std::string parent = fs::path(to).parent_path().string();
  syncDirectory(parent.empty() ? "." : parent);
}

/// All ranks write their blocks of the tensors to `writer`'s file.
template <typename AddAll, typename WriteAll>
static void writeTogether(SafetensorsWriter &writer, Comm &comm, AddAll addAll, WriteAll writeAll) {
  addAll();
  onAllRanks(comm, [&] {
    if (comm.rank() == 0)
      writer.create();
  });
  onAllRanks(comm, [&] {
    if (comm.rank() != 0)
      writer.open();
    writeAll();
    writer.sync();
    writer.close();
  });
}

void pcrt::saveCheckpoint(const std::string &directory, const Program &program, int64_t step, const Arena &arena,
                          Comm &comm) {
  std::string path = plainPath(directory), temporary = path + ".tmp";
  auto writeBlock = [&](SafetensorsWriter &writer, const std::string &name, const Tensor &tensor,
                        const Parameter &parameter) {
    if (!program.writes(tensor, parameter, comm.rank()))
      return;
    Block block = blockOf(program.mesh, tensor.shape, tensor.layout, comm.rank());
    HostBlock host(arena, tensor.offset, block.elements() * dtypeBytes(tensor.dtype), HostBlock::Read);
    if (writer.write(writer.placeOf(name), parameter.valid, block, parameter.box, tensor.dtype, host.data()) != PCRT_OK)
      fail(PCRT_RESOURCE, withErrno("cannot save to " + path));
  };
  try {
    onAllRanks(comm, [&] {
      if (comm.rank() != 0)
        return;
      std::error_code error;
      fs::remove_all(temporary, error);
      if (!fs::create_directories(temporary, error) || error)
        fail(PCRT_RESOURCE, "cannot save to " + path + ": " + error.message());
    });
    SafetensorsWriter model(temporary + "/model.safetensors");
    model.addMetadata("format", "pt");
    writeTogether(
        model, comm,
        [&] {
          for (const Program *stage : program.stages)
            for (const Parameter &parameter : stage->parameters)
              model.add(parameter.source, parameter.box.shape);
        },
        [&] {
          for (const Parameter &parameter : program.parameters)
            writeBlock(model, parameter.source, parameter, parameter);
        });
    SafetensorsWriter training(temporary + "/training_state.safetensors");
    training.addMetadata("step", std::to_string(step));
    training.addMetadata("optimizer", program.optimizer);
    writeTogether(
        training, comm,
        [&] {
          for (const Program *stage : program.stages)
            for (const State &state : stage->states)
              training.add(stateName(*stage, state), stage->parameters[state.parameter].box.shape);
        },
        [&] {
          for (const State &state : program.states)
            writeBlock(training, stateName(program, state), state, program.parameters[state.parameter]);
        });
    onAllRanks(comm, [&] {
      if (comm.rank() != 0)
        return;
      writeFile(temporary + "/config.json", program.config.dump(2) + "\n");
      takePlace(temporary, path);
    });
  } catch (const Failure &failure) {
    std::error_code ignored;
    if (comm.rank() == 0)
      fs::remove_all(temporary, ignored);
    if (failure.status == PCRT_RESOURCE)
      fail(PCRT_RESOURCE,
           "saving the checkpoint failed: " + failure.message + "; an older one in " + path + " is as it was");
    throw;
  }
}

int64_t pcrt::loadCheckpoint(const std::string &directory, const Program &program, int rank, const Arena &arena,
                             Pool &pool) {
  std::string path = plainPath(directory);
  readParameters(program, Safetensors::open(path + "/model.safetensors"), rank, arena, pool);
  std::string statePath = path + "/training_state.safetensors";
  Safetensors training = Safetensors::open(statePath);
  auto text = [&](const char *key) {
    auto found = training.metadata().find(key);
    return found == training.metadata().end() ? std::string() : found->second;
  };
  std::string steps = text("step");
  char *end = nullptr;
  int64_t step = strtoll(steps.c_str(), &end, 10);
  if (steps.empty() || *end || step < 0)
    fail(PCRT_BAD_DATA, statePath + ": no number of steps in its metadata");
  if (program.training && text("optimizer") != program.optimizer)
    fail(PCRT_BAD_DATA, statePath + ": it was saved by optimizer '" + text("optimizer") + "', this program runs '" +
                            program.optimizer + "'");
  for (const State &state : program.states) {
    const Parameter &parameter = program.parameters[state.parameter];
    std::string name = stateName(program, state);
    const StoredTensor &stored = checkStored(training.find(name), name, parameter.box, statePath);
    readBlock(state, parameter.valid, parameter.box, stored, program.mesh, rank, arena);
  }
  return step;
}
