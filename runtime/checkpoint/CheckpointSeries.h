//===- CheckpointSeries.h - The checkpoints of a long run -----------------===//
// --checkpoint DIR writes DIR/step-00001200 and so on, each of which is a checkpoint like that of --save
// (Checkpoint.h). It also writes DIR/latest, with the name of the newest one, for people to read. A run continues from
// the newest complete checkpoint, so the first start and every restart have the same command line. DIR.lock prevents a
// second run.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_CHECKPOINTSERIES_H
#define PCRT_CHECKPOINT_CHECKPOINTSERIES_H

#include "checkpoint/Checkpoint.h"
#include "checkpoint/StateImage.h"

#include <atomic>
#include <thread>

namespace pcrt {

/// Returns the checkpoint that --load DIR names: DIR, or the newest checkpoint in DIR that all ranks find complete. All
/// ranks call this function. Throws PCRT_BAD_DATA if DIR has checkpoints, but none is complete.
std::string checkpointAt(const std::string &directory, Comm &comm);

/// Decides when a run saves, writes checkpoints (also while a step runs), keeps the newest ones and removes older ones.
/// Every rank has one CheckpointSeries, and all ranks call its methods in the same order; only rank 0 renames and
/// removes. The first failure to write a checkpoint is a warning; a second failure in a row ends the run.
class CheckpointSeries {
public:
  /// Locks DIR for this run and removes files that a killed run has left. Throws PCRT_RESOURCE unless there is room for
  /// `keep` checkpoints and one more that is being written. All ranks construct one.
  CheckpointSeries(const Options &options, const Program &program, Comm &comm);

  /// Returns the newest checkpoint that all ranks find complete, or an empty text if there is none yet. Sets incomplete
  /// checkpoints aside, with a warning. With --rollback, if numbers were not finite after the newest checkpoint,
  /// returns one that is at least that many steps older. The run then leaves out the samples up to the step where
  /// numbers were not finite. Checkpoints in between are renamed to step-<step>.rolled-back-<tag>, and no run removes
  /// these. All ranks call this function. Throws PCRT_BAD_DATA if no checkpoint is complete, and PCRT_USAGE if none is
  /// old enough.
  std::string newestWhole();
  /// Renames a damaged checkpoint to step-<step>.damaged-<tag>. Throws PCRT_RESOURCE.
  void setAside(const std::string &path);

  /// Prepares to write while steps run. For a device whose arena the host cannot access, this needs host memory for a
  /// copy of this rank's state. If a rank has too little memory, all ranks save between steps, with a warning. All
  /// ranks call it.
  void prepare(const Program &program, Device &device);
  bool savesBesideSteps() const { return besideSteps; }

  /// Starts the interval at `step`, at which there is a checkpoint or training begins.
  void begin(int64_t step);
  /// Whether a save is due by this rank's clock. Only rank 0's answer counts (StopCheck).
  bool isTime() const;
  /// Whether a save is due before `step` by the number of steps; the answer is the same on all ranks.
  bool isTurn(int64_t step) const;

  /// Writes DIR/step-<step>, unless it exists already, and removes the oldest checkpoints beyond --keep. If there is no
  /// room, first removes older checkpoints, except the newest. If the room is still too small, warns; the second time
  /// in a row, also sets failure(). With `last`, throws PCRT_RESOURCE instead. All ranks call this function.
  void write(const Program &program, const Trajectory &trajectory, const TokenizerFiles &tokenizer, Device &device,
             bool last);

  /// These functions write a checkpoint while training goes on: while the next step runs, up to its first update of
  /// states, or, if there is a copy of the state, while any number of steps run. All ranks call `start` before the step
  /// and `afterStep` after it. Each rank calls waitForBlocks, which allocates nothing, before its first update. All
  /// ranks call `complete` when all of them have written their parts (isWritten), or in order to wait for that.
  void start(const Program &program, const Trajectory &trajectory, const TokenizerFiles &tokenizer, Device &device);
  void waitForBlocks();
  void afterStep() {
    if (!image)
      complete();
  }
  bool isWritten() const { return writer && written; }
  void complete();
  /// Set on all ranks if the run must end because two checkpoints in a row could not be written.
  const std::optional<Failure> &failure() const { return ended; }
  ~CheckpointSeries() {
    waitForBlocks();
    waitForRemoval();
  }

private:
  void recover();
  std::string goBack(const std::string &newest);
  std::string nextLatest(const std::string &tag) const { return directory + "/latest.tmp-" + tag; }
  std::string temporary() const { return directory + "/trajectory.tmp"; }
  bool tryAgainAfter(const Failure &failure, bool last);
  void open(const Program &program, const Trajectory &trajectory, const TokenizerFiles &tokenizer, Device &device,
            bool last, CheckpointWriter::PartOfArena onHost = nullptr);
  bool finish(int64_t step, bool last);
  bool removeOldest(size_t newest);
  void waitForRemoval();
  bool makeRoom();
  void noteLatest(int64_t step);

  Comm &comm;
  std::string directory;
  SaveInterval every;
  int64_t keep, rollback;             ///< Steps; 0: no rollback.
  std::optional<DirectoryLock> lock;  ///< Rank 0.
  int64_t lastStep = 0, lastTime = 0; ///< The step and the time (in nanoseconds) of begin.
  double cost; ///< Seconds by which the last save delayed the steps; before the first save, an estimate from its size.
  int failures = 0;
  std::optional<Failure> ended;
  std::unique_ptr<CheckpointWriter> writer; ///< Null unless a checkpoint is being written.
  std::thread blocks;                       ///< Writes this rank's blocks while the step runs.
  std::atomic<bool> written = false;        ///< `blocks` has written everything.
  std::optional<StateImage> image;          ///< Only for a device whose arena the host cannot access.
  char *imageMemory = nullptr;
  bool besideSteps = false;
  std::thread removal; ///< Rank 0: removes older checkpoints, which takes a tenth of the time of writing.
};

} // namespace pcrt

#endif // PCRT_CHECKPOINT_CHECKPOINTSERIES_H
