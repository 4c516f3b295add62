//===- CheckpointSeries.cpp - The checkpoints of a long run ---------------===//
// Without --every, the interval is Young's optimum, sqrt(2 cost MTBF) (J. W. Young, CACM 17 (1974)). It follows from
// the measured cost of a save and the failure rate of a large published run. Rank 0 makes all decisions that depend on
// a clock or on the disk and tells the other ranks, so that ranks never disagree about the next action.
//===----------------------------------------------------------------------===//
#include "checkpoint/CheckpointSeries.h"
#include "base/SignalMask.h"
#include "comm/Collective.h"
#include "device/Profile.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <set>
#include <unistd.h>

using namespace pcrt;
namespace fs = std::filesystem;

/// The mean seconds between failures of one rank: 419 unexpected interruptions in 54 days of 16,384 GPUs (Llama 3,
/// table 5).
static constexpr double secondsToFailure = 54. * 86400 * 16384 / 419;
/// The assumed rate of a disk before the first save, in bytes per second; and the shortest interval, in seconds.
static constexpr double guessedRate = 1e9, shortestInterval = 60;

static std::string pathOf(const std::string &directory, int64_t step) {
  char name[32];
  snprintf(name, sizeof name, "/step-%08lld", (long long)step);
  return directory + name;
}

/// The steps of DIR's checkpoints, the newest first. Checkpoints without trajectory.json are not complete.
static std::vector<int64_t> stepsIn(const std::string &directory) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator(directory, error)) {
    std::string name = entry.path().filename();
    int64_t step = name.compare(0, 5, "step-") == 0 ? strtoll(name.c_str() + 5, nullptr, 10) : -1;
    if (step >= 0 && entry.path() == pathOf(directory, step) && fs::exists(entry.path() / trajectoryName, error))
      steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

/// A checkpoint that is being removed has this in its name, between the checkpoint's name and a holder's tag.
static constexpr char removing[] = ".removed-";

/// Returns the number of rank 0 on all ranks.
static int64_t numberOfFirst(Comm &comm, int64_t mine) {
  std::vector<int64_t> all(comm.size());
  requireOk(comm, comm.allGatherBytes(&mine, sizeof mine, all.data()));
  return all[0];
}

/// The newest checkpoint in DIR up to step `last` that all ranks find complete; empty if there is none at all. For each
/// incomplete one, rank 0 prints a warning, and all ranks call `onBad` with its path.
static std::string newestIn(const std::string &directory, Comm &comm,
                            const std::function<void(const std::string &)> &onBad, int64_t last = INT64_MAX) {
  std::vector<int64_t> steps = comm.rank() == 0 ? stepsIn(directory) : std::vector<int64_t>();
  std::erase_if(steps, [&](int64_t step) { return step > last; });
  for (size_t next = 0;; ++next) {
    constexpr int64_t none = -1, noneIsWhole = -2;
    int64_t step = numberOfFirst(comm, next < steps.size() ? steps[next] : steps.empty() ? none : noneIsWhole);
    if (step == noneIsWhole)
      fail(PCRT_BAD_DATA, "no checkpoint in " + directory + " is complete");
    if (step == none)
      return "";
    std::string path = pathOf(directory, step);
    try {
      onAllRanks(comm, [&] { Trajectory::read(path); });
      return path;
    } catch (const Failure &failure) {
      if (failure.status != PCRT_BAD_DATA)
        throw;
      if (comm.rank() == 0)
        fprintf(stderr, "pc: warning: %s; trying an older checkpoint\n", failure.message.c_str());
      onAllRanks(comm, [&] { onBad(path); });
    }
  }
}

std::string pcrt::checkpointAt(const std::string &directory, Comm &comm) {
  std::string there;
  onAllRanks(comm, [&] { there = whereCheckpointIs(directory); });
  std::error_code error;
  if (numberOfFirst(comm, fs::exists(there + "/" + trajectoryName, error)))
    return there;
  std::string newest = newestIn(plainPath(directory), comm, [](const std::string &) {});
  return newest.empty() ? there : newest;
}

CheckpointSeries::CheckpointSeries(const Options &options, const Program &program, Comm &comm)
    : comm(comm), directory(plainPath(options.checkpoint)), every(options.every.value_or(SaveInterval())),
      keep(options.keep.value_or(2)), rollback(options.rollback) {
  int64_t bytes = checkpointBytes(program);
  cost = double(bytes) / guessedRate;
  onAllRanks(comm, [&] {
    if (comm.rank() != 0)
      return;
    std::error_code error;
    fs::create_directories(directory, error);
    if (error)
      fail(PCRT_RESOURCE, "cannot save to " + directory + ": " + error.message());
    lock.emplace(directory, [this](const std::string &tag) { unlink(nextLatest(tag).c_str()); });
    recover();
    auto kept = int64_t(stepsIn(directory).size());
    int64_t more = std::max<int64_t>(keep + (rollback > 0) + 1 - kept, 1) * bytes;
    requireRoom(directory, more, std::to_string(keep) + " checkpoints and another one while it is written",
                "free some space, or lower --keep");
  });
}

std::string CheckpointSeries::newestWhole() {
  std::string newest = newestIn(directory, comm, [&](const std::string &path) { setAside(path); });
  return rollback && !newest.empty() ? goBack(newest) : newest;
}

/// Returns the checkpoint that --rollback means if numbers were not finite after `newest`, and `newest` otherwise. If
/// the process is killed in between, the next start does the same again: the newest checkpoint, which records the step
/// with non-finite numbers, is renamed last.
std::string CheckpointSeries::goBack(const std::string &newest) {
  Trajectory end;
  onAllRanks(comm, [&] { end = Trajectory::read(newest); });
  if (!end.ended)
    return newest;
  std::string older = newestIn(directory, comm, [&](const std::string &path) { setAside(path); }, end.step - rollback);
  if (older.empty())
    fail(PCRT_USAGE, newest + " was saved because numbers were not finite (" + end.ended->why +
                         "), but no checkpoint in " + directory + " is " + std::to_string(rollback) +
                         " steps before it; use a smaller --rollback, or none to continue from it");
  onAllRanks(comm, [&] {
    if (!lock)
      return;
    Trajectory back = Trajectory::read(older);
    int64_t next = (end.ended->samples * end.sequence + back.sequence - 1) / back.sequence;
    if (back.samples < next) {
      back.skipped.push_back({back.samples, next});
      back.samples = next;
      back.replaceIn(older, temporary());
    }
    std::vector<int64_t> steps = stepsIn(directory);
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      std::string path = pathOf(directory, *step);
      if (*step > back.step && rename(path.c_str(), (path + ".rolled-back-" + lock->tag()).c_str()) != 0)
        fail(PCRT_RESOURCE, withErrno("cannot rename " + path));
    }
    const SampleRange &out = back.skipped.back();
    printf("rolling back %lld steps because numbers were not finite (%s); samples %lld to %lld are skipped\n",
           (long long)(end.step - back.step), end.ended->why.c_str(), (long long)out.begin, (long long)out.end - 1);
  });
  return older;
}

void CheckpointSeries::setAside(const std::string &path) {
  if (lock && rename(path.c_str(), (path + ".damaged-" + lock->tag()).c_str()) != 0)
    fail(PCRT_RESOURCE, withErrno("cannot rename " + path + ", which is damaged"));
}

/// Finishes or removes files that killed runs have left in DIR: unfinished saves (by their locks) and unfinished
/// removals.
void CheckpointSeries::recover() {
  unlink(temporary().c_str());
  std::set<std::string> homes, removed;
  for (const fs::directory_entry &entry : fs::directory_iterator(directory)) {
    std::string what = entry.path().extension(), home = entry.path().parent_path() / entry.path().stem();
    if (entry.path().filename().string().compare(0, 5, "step-") != 0)
      continue;
    if (what == ".lock" || DirectoryLock::isTagged(what, ".lock-"))
      homes.insert(home);
    else if (DirectoryLock::isTagged(what, removing))
      removed.insert(entry.path());
  }
  for (const std::string &home : homes)
    SaveDirectory cleaned(home);
  for (const std::string &path : removed)
    removeCheckpoint(path, path);
}

void CheckpointSeries::begin(int64_t step) {
  lastStep = step;
  lastTime = nanoseconds();
}

bool CheckpointSeries::isTurn(int64_t step) const { return every.steps && step > lastStep && step % every.steps == 0; }

bool CheckpointSeries::isTime() const {
  if (every.steps)
    return false;
  // The interval with the smallest loss of time: sqrt(2 cost MTBF) (Young 1974).
  double seconds = every.minutes ? 60. * double(every.minutes)
                                 : std::max(std::sqrt(2 * cost * secondsToFailure / comm.size()), shortestInterval);
  return double(nanoseconds() - lastTime) * 1e-9 >= seconds;
}

/// Removes all but the `newest` newest checkpoints. Other files in them stay. The checkpoint to which a rollback from
/// the newest one would return also stays. Returns whether a checkpoint was removed.
bool CheckpointSeries::removeOldest(size_t newest) {
  std::vector<int64_t> steps = stepsIn(directory);
  auto farBack =
      std::find_if(steps.begin(), steps.end(), [&](int64_t step) { return rollback && step <= steps[0] - rollback; });
  int64_t spared = farBack == steps.end() ? -1 : *farBack;
  bool any = false;
  for (size_t i = newest; i < steps.size(); ++i)
    if (steps[i] != spared) {
      std::string path = pathOf(directory, steps[i]);
      removeCheckpoint(path, path + removing + lock->tag());
      any = true;
    }
  return any;
}

/// Removes the oldest checkpoint that may be removed, never the newest one. Returns whether there was one.
bool CheckpointSeries::makeRoom() {
  for (size_t newest = stepsIn(directory).size(); newest-- > 1;)
    if (removeOldest(newest))
      return true;
  return false;
}

/// Replaces DIR/latest as a whole. No program reads it, so errors are ignored.
void CheckpointSeries::noteLatest(int64_t step) {
  std::string next = nextLatest(lock->tag());
  FILE *file = fopen(next.c_str(), "we");
  if (!file)
    return;
  bool good = fprintf(file, "%s\n", fs::path(pathOf(directory, step)).filename().c_str()) > 0;
  good = fclose(file) == 0 && good;
  if (!good || rename(next.c_str(), (directory + "/latest").c_str()) != 0)
    unlink(next.c_str());
}

/// Handles a checkpoint that could not be written. Returns true if an older one was removed to make room, so that the
/// caller should try again. Throws if the failure is not PCRT_RESOURCE, or if this is the last checkpoint of the run.
bool CheckpointSeries::tryAgainAfter(const Failure &failure, bool last) {
  if (failure.status != PCRT_RESOURCE)
    throw failure;
  waitForRemoval();
  if (numberOfFirst(comm, lock && makeRoom()))
    return true;
  if (last)
    throw failure;
  if (++failures == 2)
    ended = failure;
  else if (lock)
    fprintf(stderr, "pc: warning: %s; the run continues\n", failure.message.c_str());
  return false;
}

/// Creates the files of a checkpoint, unless it exists already or there is no room; `writer` stays null then.
void CheckpointSeries::open(const Program &program, const Trajectory &trajectory, const TokenizerFiles &tokenizer,
                            Device &device, bool last, CheckpointWriter::PartOfArena onHost) {
  waitForRemoval();
  std::string path = pathOf(directory, trajectory.step);
  if (numberOfFirst(comm, fs::exists(path + "/" + trajectoryName))) {
    onAllRanks(comm, [&] {
      if (!lock || !trajectory.ended)
        return;
      Trajectory there = Trajectory::read(path);
      there.ended = trajectory.ended;
      there.replaceIn(path, temporary());
    });
    return;
  }
  while (!writer) {
    try {
      writer = std::make_unique<CheckpointWriter>(path, tokenizer, comm);
      writer->begin(program, trajectory, device, onHost);
    } catch (const Failure &failure) {
      writer.reset();
      if (!tryAgainAfter(failure, last))
        return;
    }
  }
}

/// Moves the checkpoint to its place. Returns false if that failed and an older checkpoint was removed, so that the
/// caller may try again.
bool CheckpointSeries::finish(int64_t step, bool last) {
  try {
    writer->finish();
    writer.reset();
  } catch (const Failure &failure) {
    writer.reset();
    return !tryAgainAfter(failure, last);
  }
  failures = 0;
  ended.reset();
  if (lock) {
    noteLatest(step);
    SignalsMasked masked;
    removal = std::thread([this] { removeOldest(size_t(keep)); });
  }
  return true;
}

void CheckpointSeries::prepare(const Program &program, Device &device) {
  besideSteps = true;
  if (device.onHost(0))
    return;
  image.emplace(program, comm.rank());
  std::string problem;
  try {
    imageMemory = device.hostMemory(image->bytes());
  } catch (const Failure &failure) {
    problem = failure.message;
  }
  auto mine = int64_t(problem.empty());
  std::vector<int64_t> all(comm.size());
  requireOk(comm, comm.allGatherBytes(&mine, sizeof mine, all.data()));
  if (std::count(all.begin(), all.end(), 0) == 0)
    return;
  besideSteps = false;
  image.reset();
  if (!problem.empty())
    fprintf(stderr, "pc: warning: %s, so checkpoints are written between steps\n", problem.c_str());
}

void CheckpointSeries::waitForRemoval() {
  if (removal.joinable())
    removal.join();
}

void CheckpointSeries::write(const Program &program, const Trajectory &trajectory, const TokenizerFiles &tokenizer,
                             Device &device, bool last) {
  complete();
  int64_t start = nanoseconds();
  for (bool done = false; !done;) {
    open(program, trajectory, tokenizer, device, last);
    if (writer)
      writer->writeBlocks();
    done = !writer || finish(trajectory.step, last);
  }
  cost = double(nanoseconds() - start) * 1e-9;
  begin(trajectory.step);
}

void CheckpointSeries::start(const Program &program, const Trajectory &trajectory, const TokenizerFiles &tokenizer,
                             Device &device) {
  complete();
  int64_t start = nanoseconds();
  CheckpointWriter::PartOfArena fromImage = [this](int64_t offset) { return imageMemory + image->placeOf(offset); };
  open(program, trajectory, tokenizer, device, /*last=*/false, image ? fromImage : nullptr);
  begin(trajectory.step);
  if (!writer)
    return;
  if (image)
    device.copyAside(image->copiesTo(imageMemory));
  written = false;
  SignalsMasked masked;
  blocks = std::thread([this, &device] {
    writer->writeBlocks([&] { device.waitForCopies(); });
    written = true;
  });
  cost = double(nanoseconds() - start) * 1e-9;
}

void CheckpointSeries::waitForBlocks() {
  if (!blocks.joinable())
    return;
  int64_t start = nanoseconds();
  blocks.join();
  cost += double(nanoseconds() - start) * 1e-9;
}

void CheckpointSeries::complete() {
  if (!writer)
    return;
  waitForBlocks();
  int64_t start = nanoseconds();
  finish(lastStep, /*last=*/false); // the arena now has a later state, so there is no second attempt
  cost += double(nanoseconds() - start) * 1e-9;
}
