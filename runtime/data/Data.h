//===- Data.h - Tokens to train on ----------------------------------------===//
// A token file is llm.c's .bin format, a NumPy array, raw little-endian numbers, or any file's bytes. Of one file that
// is read in its order sample g, a row of a batch, reads tokens [g*T, (g+1)*T), targets one further, or from a file of
// their own at the same places; positions count modulo the tokens of the file. Else SampleOrder says which window it
// is.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_DATA_H
#define PCRT_DATA_DATA_H

#include "base/InputFile.h"
#include "base/Program.h"
#include "data/Options.h"
#include "data/SampleOrder.h"

namespace pcrt {

/// Little-endian integers, one for each token.
struct TokenFormat {
  int64_t start = 0; ///< Bytes before the first token.
  int bytes = 2;     ///< Of a token: 1, 2, 4 or 8.
  bool isSigned = false;
};

/// What a target that does not count is in files of targets, as a signed number of the file's width.
constexpr int32_t noTarget = -100;

class TokenFile {
public:
  /// Opens "FILE" (llm.c's .bin, .npy, else raw uint16), "u32:FILE" (raw uint32) or "text:FILE" (bytes). Throws
  /// PCRT_BAD_DATA if it is malformed, has fewer than two tokens, or, read as raw numbers, looks like wider ones or is
  /// known to be something else (FileKind.h).
  explicit TokenFile(const std::string &spec);

  int64_t count() const { return tokens; }
  const std::string &path() const { return file.path(); }
  const std::string &spec() const { return name; }

  /// Throws PCRT_BAD_DATA if the file holds raw 16-bit numbers, which are too narrow for `vocabulary`.
  void checkVocabulary(int64_t vocabulary) const;

  /// Reads `n` tokens from `position` on, modulo count(). Throws PCRT_BAD_DATA, naming file, position, token and
  /// vocabulary, if one is not in [0, vocabulary) and, of targets, not `noTarget`. Allocates nothing otherwise.
  void read(int64_t position, int64_t n, int64_t vocabulary, int32_t *out, bool areTargets = false) const;

private:
  std::string name;
  InputFile file;
  TokenFormat format;
  int64_t tokens = 0;
  bool isRaw16 = false; ///< No header says that the numbers have 16 bits.
};

/// All that --data names: FILE or PATTERN, with commas between, all of them or none with *WEIGHT after it. Without
/// weights all files are one source. And what --targets names: a file for each of them, of as many numbers, or of as
/// many more or fewer as a sample has targets.
class TokenData {
public:
  /// Opens the files. `training`: not those windows that --validation holds out; else only those. `targetSequence`:
  /// targets of a sample that come from a file of their own; 0: as many as tokens. Throws PCRT_BAD_DATA as TokenFile,
  /// or if a file has no window of `sequence` tokens and a target; PCRT_USAGE if weights make no sense.
  TokenData(const Options &options, int64_t sequence, bool training, int64_t targetSequence = 0);

  const std::vector<TokenFile> &files() const { return all; }
  /// None: a target is the token after.
  const std::vector<TokenFile> &targets() const { return targetsOf; }
  /// By file; 0: one of several without weights.
  const std::vector<double> &weights() const { return weightOf; }

  /// How many whole samples there are of what is read, until they come again.
  int64_t windows() const;

  /// Where samples [first, first + count) have their targets, for messages: "t.npy at positions 32 to 47, u.npy at
  /// positions 0 to 31". Names a few of many.
  std::string describe(int64_t first, int64_t count) const;

  /// Reads a sample's tokens and targets; a target is `noTarget` where it does not count. `tokens` has room
  /// for one more. Throws as TokenFile::read.
  void read(int64_t sample, int64_t vocabulary, int32_t *tokens, int32_t *targets) const;

private:
  /// Where a sample is read.
  struct Window {
    size_t file = 0;
    int64_t token = 0, target = 0; ///< The first one's position in the file of tokens, and in that of targets.
  };
  Window windowOf(int64_t sample) const;

  /// Opens the files of --targets.
  void openTargets(const Options &options);

  std::vector<TokenFile> all, targetsOf;
  std::vector<double> weightOf;
  std::vector<int> first; ///< By source: its first file.
  int64_t sequence, targetSequence;
  std::optional<SampleOrder> order; ///< None: one file in its order.
};

/// The row of a step's batch that is row `index` of microbatch `microbatch`. Replicas' rows lie one after the other,
/// whatever their microbatches.
inline int64_t rowOf(const Program &program, int64_t microbatch, int64_t index) {
  int64_t ofReplica = program.batch / program.rounds.replicas, rows = ofReplica / program.microbatches;
  return index / rows * ofReplica + microbatch * rows + index % rows;
}

/// Consecutive samples.
struct Samples {
  int64_t first = 0, count = 0;
};

/// What the loss of a batch is the mean of.
enum class MeanOver {
  Replica, ///< The targets of each replica of local SGD by themselves, as a step wants it.
  Batch    ///< All targets of the batch that count.
};

/// Whether a stage of the program has an input of this kind.
bool hasInput(const Program &program, const std::string &kind);

/// Fills the tokens, the targets and their weights of one rank for a step. Allocates nothing unless it fails.
class BatchLoader {
public:
  /// Throws as TokenFile::checkVocabulary.
  BatchLoader(const Program &program, const TokenData &data, int rank, MeanOver meanOver);

  /// Checks the batch that these samples make (all of it, so that every rank finds the same error) and writes this
  /// rank's part to `inputs`, one address for each input of the program. Where they are fewer than its rows they fill
  /// it in turns: with weights of targets only the first turn counts, without these their number has to divide that of
  /// the rows. Throws as TokenData::read, and PCRT_BAD_DATA if a target does not count in a program that counts all.
  void fill(Samples samples, char *const *inputs);

  /// How many targets of that batch the loss is the mean of, by replica of local SGD; repeated samples do not count.
  const std::vector<int64_t> &counted() const { return targetsCounted; }

private:
  void countTargets(Samples samples);
  void findStarts();

  const Program &program;
  const TokenData &data;
  std::vector<Block> blocks; ///< By input.
  std::vector<int32_t> tokens,
      targets;             ///< Of all rows of the batch, one more token each; what a rank needs of them is its part.
  bool isWeighted = false; ///< The program has weights of targets.
  MeanOver meanOver;
  std::vector<int64_t> targetsCounted;
  /// For each token: the position where its document begins. Empty if no input needs it.
  std::vector<int32_t> starts;
  int64_t endOfDocument = 0; ///< The last token of a document.
};

} // namespace pcrt

#endif // PCRT_DATA_DATA_H
