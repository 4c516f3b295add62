//===- Samples.h - The samples that a run reads ----------------------------===//
#ifndef PCRT_DATA_SAMPLES_H
#define PCRT_DATA_SAMPLES_H

#include "base/Program.h"
#include "data/Options.h"

#include <memory>

namespace pcrt {

/// The value, in files of targets, of a target that does not count, as a signed number of the file's width.
constexpr int32_t noTarget = -100;

/// Returns the number, in a step's batch, of row `index` of microbatch `microbatch`. The rows of replicas follow each
/// other, even if there are microbatches.
inline int64_t rowOf(const Program &program, int64_t microbatch, int64_t index) {
  int64_t ofReplica = program.batch / program.rounds.replicas, rows = ofReplica / program.microbatches;
  return index / rows * ofReplica + microbatch * rows + index % rows;
}

/// Consecutive samples.
struct Samples {
  int64_t first = 0, count = 0;
};

/// The targets over which the loss of a batch is a mean.
enum class MeanOver {
  Replica, ///< The targets of each replica of local SGD separately, as a step needs it.
  Batch    ///< All targets of the batch that count.
};

/// Whether a stage of the program has an input of this kind.
bool hasInput(const Program &program, const std::string &kind);

/// Fills the inputs of one rank that come from files. Allocates nothing unless it fails.
class Loader {
public:
  virtual ~Loader() = default;

  /// Writes this rank's part of the batch of these samples to `inputs`, which has one address for each input of the
  /// program. If there are fewer samples than rows, samples are repeated. Throws PCRT_BAD_DATA naming a file.
  virtual void fill(Samples samples, char *const *inputs) = 0;

  /// Returns the number of targets in that batch over which the loss is a mean, for each replica of local SGD. Repeated
  /// samples do not count.
  const std::vector<int64_t> &counted() const { return targetsCounted; }

protected:
  std::vector<int64_t> targetsCounted;
};

/// The samples that a run reads, in their order.
class SampleData {
public:
  /// A file that is read.
  struct File {
    std::string flag, spec, path; ///< "--data", the name in the flag or pattern, and the same without its format.
    int64_t count = 0;            ///< Its tokens, or rows.
    double weight = 1;            ///< 0: one of several files without weights.
  };

  virtual ~SampleData() = default;
  virtual std::vector<File> filesRead() const = 0;

  /// The number of whole samples in the data, before they repeat.
  virtual int64_t windows() const = 0;

  /// The unit of samples, for messages: "samples of 16 tokens".
  virtual std::string what() const = 0;

  /// Describes where the targets of samples [first, first + count) are, for messages.
  virtual std::string describe(int64_t first, int64_t count) const = 0;

  /// Throws PCRT_BAD_DATA if the files do not fit the program.
  virtual std::unique_ptr<Loader> loader(const Program &program, int rank, MeanOver meanOver) const = 0;
};

/// Opens the files that --data and --targets name: files of tokens, or a file for each input of the program, by name.
/// If `training` is true, samples that --validation holds out are left out; otherwise only these are read. Throws
/// PCRT_BAD_DATA naming a file, or PCRT_USAGE.
std::unique_ptr<SampleData> openSamples(const Options &options, const Program &program, bool training);

/// Returns the files that match a pattern, in the order of their names. A text that is not a pattern is the name of a
/// file. Throws PCRT_BAD_DATA if no file matches.
std::vector<std::string> filesOf(const std::string &pattern, const std::string &flag);

} // namespace pcrt

#endif // PCRT_DATA_SAMPLES_H
