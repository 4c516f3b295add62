//===- CheckpointSeries.h - the checkpoints of a long run ------------------===//
//
// --checkpoint DIR: DIR/step-00001200 and so on, each of them what --save makes
// (Checkpoint.h), and DIR/latest, the name of the newest one, for people. A run
// goes on from the newest one that is whole, so that the first start and every
// restart have the same command line. DIR.lock keeps a second run away.
//
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_CHECKPOINTSERIES_H
#define PCRT_CHECKPOINT_CHECKPOINTSERIES_H

#include "checkpoint/Checkpoint.h"

#include <thread>

namespace pcrt {

/// What --load DIR means: DIR, or the newest checkpoint in it that all ranks find complete. All ranks call it. Throws
/// PCRT_BAD_DATA if there are some, but none is complete.
std::string checkpointAt(const std::string &directory, Comm &comm);

class CheckpointSeries {
public:
  /// Locks DIR for this run, removes what a killed one has left, and throws PCRT_RESOURCE unless there is room for
  /// `keep` checkpoints and one that is being written. All ranks make one.
  CheckpointSeries(const Options &options, const Program &program, Comm &comm);

  /// The newest checkpoint that all ranks find complete; empty: there is none yet. Others are set aside, with a
  /// warning. With --rollback, if numbers were not finite after the newest one: one at least that many steps back,
  /// from where the samples up to there are left out; checkpoints between are renamed to
  /// step-<step>.rolled-back-<tag>, and no run removes these. All ranks call it. Throws PCRT_BAD_DATA if none is
  /// complete, PCRT_USAGE if none is far enough back.
  std::string newestWhole();
  /// Renames a damaged checkpoint to step-<step>.damaged-<tag>. Throws PCRT_RESOURCE.
  void setAside(const std::string &path);

  /// The run is at `step`, where a checkpoint is or training begins: from now on the interval counts.
  void begin(int64_t step);
  /// Whether rank 0 wants a save before `step`, by its clock: what ranks ask each other (StopCheck).
  bool isTime() const;
  /// Whether a save is due before `step` by the number of steps, which all ranks know.
  bool isTurn(int64_t step) const;

  /// Writes DIR/step-<step>, unless it is there already, and removes the oldest ones beyond --keep. Where there is no
  /// room older ones go first, but for the newest. If that does not help either, a warning is all that comes of it,
  /// and a failure() the second time in a row. Throws PCRT_RESOURCE if `last`. All ranks call it.
  void write(const Program &program, const Trajectory &trajectory, const TokenizerFiles &tokenizer, Device &device,
             bool last);

  /// Writes a checkpoint while the next step runs, up to its first update of states. Call start before the step,
  /// waitForBlocks (on this rank; nothing is allocated) before its first update, complete after it, on all ranks.
  void start(const Program &program, const Trajectory &trajectory, const TokenizerFiles &tokenizer, Device &device);
  void waitForBlocks();
  void complete();
  /// Why the run is to end, which all ranks know: two checkpoints in a row could not be written.
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
            bool last);
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
  int64_t lastStep = 0, lastTime = 0; ///< begin's.
  double cost; ///< Seconds that a save costs the steps: the last one's, before it a guess by its size.
  int failures = 0;
  std::optional<Failure> ended;
  std::unique_ptr<CheckpointWriter> writer; ///< Of the checkpoint that is being written.
  std::thread blocks;                       ///< Writes its blocks beside the step.
  std::thread removal; ///< Rank 0: of older ones, for which a disk takes a tenth of what writing takes.
};

} // namespace pcrt

#endif // PCRT_CHECKPOINT_CHECKPOINTSERIES_H
