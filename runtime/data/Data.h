//===- Data.h - Tokens to train on ----------------------------------------===//
// A token file is llm.c's .bin format, a NumPy array, raw little-endian numbers, or any file's bytes. If one file is
// read in order, sample g (a row of a batch) reads tokens [g*T, (g+1)*T). Its targets are the tokens one position
// later, or the numbers at the same positions of a file of targets. Positions count modulo the tokens of the file.
// Otherwise SampleOrder chooses the window of a sample.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_DATA_H
#define PCRT_DATA_DATA_H

#include "base/InputFile.h"
#include "data/SampleOrder.h"
#include "data/Samples.h"

namespace pcrt {

/// llm.c's .bin files have 256 words of header (magic, version, number of tokens), then the tokens.
struct BinFormat {
  int32_t magic, version;
  int bytes; ///< The bytes of a token.
};
inline constexpr BinFormat binFormats[] = {{20240520, 1, 2}, {20240801, 7, 4}};
inline constexpr int64_t binHeaderBytes = 256 * 4;

/// The layout of the tokens in a file: little-endian integers.
struct TokenFormat {
  int64_t start = 0; ///< Bytes before the first token.
  int bytes = 2;     ///< Bytes of a token: 1, 2, 4 or 8.
  bool isSigned = false;
};

/// An open file of tokens. Any number of threads may read it.
class TokenFile {
public:
  /// Opens "FILE" (llm.c's .bin, .npy, otherwise raw uint16), "u32:FILE" (raw uint32) or "text:FILE" (bytes). Throws
  /// PCRT_BAD_DATA if the file is malformed or has fewer than two tokens. Also throws it if raw numbers look like wider
  /// ones, or if the file is known to be something else (FileKind.h).
  explicit TokenFile(const std::string &spec);

  int64_t count() const { return tokens; }
  const std::string &path() const { return file.path(); }
  const std::string &spec() const { return name; }

  /// Throws PCRT_BAD_DATA if the file holds raw 16-bit numbers, which are too narrow for `vocabulary`.
  void checkVocabulary(int64_t vocabulary) const;

  /// Reads `n` tokens from `position` on, modulo count(). Throws PCRT_BAD_DATA, naming file, position, token and
  /// bound, if a token is not in [0, vocabulary); targets may also be `noTarget`. Allocates nothing otherwise.
  void read(int64_t position, int64_t n, int64_t vocabulary, int32_t *out, bool areTargets = false) const;

private:
  std::string name;
  InputFile file;
  TokenFormat format;
  int64_t tokens = 0;
  bool isRaw16 = false; ///< The file has no header that states that numbers have 16 bits.
};

/// The files of --data, and how samples are read from them. The flag is a list of FILE or PATTERN, separated by commas.
/// Either all entries or none are followed by *WEIGHT. Without weights, all files are one source. --targets names a
/// file for each file of --data. Such a file has as many numbers as its data file, or the number of targets that
/// belongs to its samples. Any number of threads may read.
class TokenData : public SampleData {
public:
  /// Opens the files. If `training` is true, reads the windows that --validation does not hold out, otherwise only the
  /// windows that are held out. `targetSequence` is the number of targets of a sample if targets come from a separate
  /// file; 0 stands for the number of tokens. Throws PCRT_BAD_DATA like TokenFile, or if a file has no window of
  /// `sequence` tokens and a target. Throws PCRT_USAGE if weights are invalid.
  TokenData(const Options &options, int64_t sequence, bool training, int64_t targetSequence = 0);

  const std::vector<TokenFile> &files() const { return all; }
  /// The files of targets; if there are none, a target is the next token.
  const std::vector<TokenFile> &targets() const { return targetsOf; }
  /// Returns the weight of each file; 0 if there are several files and no weights are given.
  const std::vector<double> &weights() const { return weightOf; }

  std::vector<File> filesRead() const override;
  int64_t windows() const override;
  std::string what() const override { return "samples of " + std::to_string(sequence) + " tokens"; }
  std::unique_ptr<Loader> loader(const Program &program, int rank, MeanOver meanOver) const override;

  /// Describes samples: "t.npy at positions 32 to 47, u.npy at positions 0 to 31". If there are many, names a few.
  std::string describe(int64_t first, int64_t count) const override;

  /// Reads a sample's tokens, below `vocabulary`, and its targets. If targets come from a separate file, they are below
  /// `classes`, or `noTarget` for a target that does not count. `tokens` has room for one more token. Throws like
  /// TokenFile::read.
  void read(int64_t sample, int64_t vocabulary, int64_t classes, int32_t *tokens, int32_t *targets) const;

private:
  /// The place of a sample in the files.
  struct Window {
    size_t file = 0;
    int64_t token = 0, target = 0; ///< Positions of its first token and target in their files.
  };
  Window windowOf(int64_t sample) const;

  /// Opens the files of --targets.
  void openTargets(const Options &options);

  std::vector<TokenFile> all, targetsOf;
  std::vector<double> weightOf;
  std::vector<int> first; ///< By source: its first file.
  int64_t sequence, targetSequence;
  std::optional<SampleOrder> order; ///< Empty: one file is read in order.
};

/// Fills the inputs by token of one rank for a step: tokens, targets, their weights, positions. The loader borrows
/// program and data. One thread uses it. fill() allocates nothing unless it fails.
class BatchLoader : public Loader {
public:
  /// Throws like TokenFile::checkVocabulary.
  BatchLoader(const Program &program, const TokenData &data, int rank, MeanOver meanOver);

  /// Fills the inputs. Checks the whole batch, so that every rank finds the same error. If there are fewer samples than
  /// rows, samples are repeated. If targets have weights, only the first occurrence of a sample counts; otherwise, the
  /// number of rows must be a multiple of the number of samples. Throws like TokenData::read. Throws PCRT_BAD_DATA if a
  /// target does not count, but the program counts all targets.
  void fill(Samples samples, char *const *inputs) override;

private:
  void countTargets(Samples samples);
  void findStarts();

  const Program &program;
  const TokenData &data;
  std::vector<Block> blocks; ///< By input.
  std::vector<int32_t> tokens,
      targets;             ///< All rows of the batch, each with one more token; a rank needs only a part of them.
  int64_t classes;         ///< The limit of targets that come from a separate file.
  bool isWeighted = false; ///< The program has weights of targets.
  MeanOver meanOver;
  /// For each token, the position at which its document begins. Empty if no input needs it.
  std::vector<int32_t> starts;
  int64_t endOfDocument = 0; ///< The last token of a document.
};

} // namespace pcrt

#endif // PCRT_DATA_DATA_H
