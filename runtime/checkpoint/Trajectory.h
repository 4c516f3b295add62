//===- Trajectory.h - The record of how a checkpoint was made -------------===//
// trajectory.json in a checkpoint has the step, everything that the numbers depend on (flags, data, optimizer), and the
// sum of every tensor. It is written last, so a directory without it is not a checkpoint. runtime/README.md describes
// the file.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CHECKPOINT_TRAJECTORY_H
#define PCRT_CHECKPOINT_TRAJECTORY_H

#include "base/Program.h"
#include "data/Options.h"
#include "metrics/NormLimit.h"

namespace pcrt {

/// Identifies a file without reading all of it.
struct FileIdentity {
  int64_t bytes = 0;
  std::string sum; ///< A sum of the first and the last MiB.

  /// Throws PCRT_BAD_DATA if the file cannot be read.
  static FileIdentity of(const std::string &path);
};

/// One identity for all files of weights at `path`, a file or a directory.
FileIdentity identityOfWeights(const std::string &path);

/// A file of tokens that a run reads.
struct DataIdentity {
  std::string file; ///< The path as --data or its pattern gives it.
  int64_t tokens = 0;
  FileIdentity identity;
  double weight = 1; ///< 0: there are several files, and no weights are given.
};

/// One identity for all files of tokens.
FileIdentity identityOf(const std::vector<DataIdentity> &data);

/// A tensor of a file of the checkpoint.
struct TensorRecord {
  Dims shape;
  std::string sum;           ///< TensorSum::text of all of its elements.
  std::string dtype = "F32"; ///< Or I8, of codes.
};

/// The samples [begin, end).
struct SampleRange {
  int64_t begin = 0, end = 0;
};

/// Says that a run ended at a checkpoint because numbers were not finite.
struct NonFiniteEnd {
  std::string why;
  int64_t samples = 0; ///< The number of samples read so far, including the samples of a step with non-finite numbers.
};

/// The contents of trajectory.json.
struct Trajectory {
  int64_t step = 0;    ///< Updates that were made.
  int64_t samples = 0; ///< Sequences read so far, which is the number of the first one of the next batch.
  int64_t batch = 0, sequence = 0;
  std::string optimizer, plan;
  std::string program;                     ///< Sum of the executable.
  std::string rounds = "none";             ///< The rounds of local SGD: "every 32 steps, rate 0.7, momentum 0.9".
  int64_t replicas = 1;                    ///< The replicas of local SGD.
  std::string groups = "none";             ///< Groups of parameters (Program::groups).
  std::string baseFrom;                    ///< The path from which an adapter's base was read; empty: it was drawn.
  std::map<std::string, std::string> base; ///< The sums of the tensors of an adapter's base, by name.
  std::vector<FlagValue> flags;            ///< The flags on which the numbers depend.
  std::vector<DataIdentity> data;
  NormLimit::History norms;
  std::vector<SampleRange> skipped; ///< Samples that --rollback left out.
  std::optional<NonFiniteEnd> ended;
  std::map<std::string, int64_t> files;                               ///< Sizes of the directory's files, in bytes.
  std::map<std::string, std::map<std::string, TensorRecord>> tensors; ///< By file and name.

  /// The record of a tensor, or null.
  const TensorRecord *record(const std::string &file, const std::string &tensor) const {
    auto all = tensors.find(file);
    if (all == tensors.end())
      return nullptr;
    auto found = all->second.find(tensor);
    return found == all->second.end() ? nullptr : &found->second;
  }

  /// The text of trajectory.json, including its checksum.
  std::string text() const;
  /// Reads DIRECTORY/trajectory.json. Throws PCRT_BAD_DATA if it is missing, damaged or of a newer version.
  static Trajectory read(const std::string &directory);
  /// Replaces DIRECTORY/trajectory.json in one step, by way of `temporary`. Throws PCRT_RESOURCE.
  void replaceIn(const std::string &directory, const std::string &temporary) const;
};

constexpr const char *trajectoryName = "trajectory.json";

/// Writes a small file and syncs it to the disk. Throws PCRT_RESOURCE.
void writeSynced(const std::string &path, const std::string &text);

/// Throws PCRT_USAGE, with a list of the differences between `now` and `before`, unless --change names all of them.
void checkSameTrajectory(const Trajectory &before, const Trajectory &now, const Options &options);

/// Throws PCRT_BAD_DATA, naming the key, unless DIRECTORY/config.json means the model of `program`. Checks nothing if
/// there is no such file.
void checkConfig(const Program &program, const std::string &directory);

} // namespace pcrt

#endif // PCRT_CHECKPOINT_TRAJECTORY_H
