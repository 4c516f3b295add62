//===- Data.cpp - Tokens to train on --------------------------------------===//
// Reads tokens by pread and converts them in place, checking each against the vocabulary. The formats are those of
// llm.c (dev/data/data_common.py) and NumPy (numpy/lib/format.py, versions 1 to 3).
//===----------------------------------------------------------------------===//
#include "data/Data.h"
#include "base/Failure.h"
#include "base/Npy.h"
#include "data/Arrays.h"
#include "data/FileKind.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <glob.h>
#include <numeric>

using namespace pcrt;

namespace {

/// The array of a .npy file: one dim of integers.
TokenFormat openNpy(const InputFile &file, int64_t *count) {
  auto refuse = [&](const std::string &why) { fail(PCRT_BAD_DATA, file.path() + ": " + why); };
  NpyArray array = readNpy(file, "tokens");
  if (!strchr("iu", array.dtype[1]))
    refuse("the array does not contain integers, but '" + array.dtype + "'; save it after .astype('<u4')");
  if (array.dims.size() != 1)
    refuse("the array has shape (" + array.shape + ") instead of one dim; save it after .ravel()");
  *count = array.dims[0];
  return {array.start, array.bytes(), array.dtype[1] == 'i'};
}

/// Raw numbers have no header that states their width or that they are tokens. So a file that looks like wider numbers,
/// or that has another known format, is refused.
TokenFormat openRaw(const InputFile &file, int bytes) {
  std::string bits = std::to_string(8 * bytes), twice = std::to_string(16 * bytes);
  auto refuse = [&](const std::string &why) { fail(PCRT_BAD_DATA, file.path() + ": " + why); };
  if (std::string why = whyNotTokens(file); !why.empty())
    fail(PCRT_BAD_DATA, file.path() + " " + why);
  if (file.size() % bytes)
    refuse(std::to_string(file.size()) + " bytes are not a whole number of " + bits +
           "-bit tokens; for text, use text:" + file.path());
  auto refuseIfWider = [&](int width, Half second, const std::string &what) {
    if (std::optional<uint64_t> most = mostInHalves(file, width, second))
      refuse("every other " + std::to_string(8 * width) + "-bit number is " +
             (*most ? "at most " + std::to_string(*most) : "zero") + ", so this looks like a file of " + what);
  };
  refuseIfWider(bytes, Half::Low, "big-endian " + twice + "-bit numbers; save them as little-endian");
  refuseIfWider(4, Half::High, "64-bit numbers; save them as .npy, or as uint32 for u32:FILE");
  refuseIfWider(bytes, Half::High,
                twice + "-bit numbers; use u32:" + file.path() + ", or save numbers of " + bits + " bits as .npy");
  return {0, bytes, false};
}

/// Converts n numbers. With `none`, a number that is `noTarget` in the type T is also allowed. Returns the index of the
/// first number that is not a token of the vocabulary, or n.
template <typename T> int64_t convert(const char *raw, int64_t n, int64_t vocabulary, bool none, int32_t *out) {
  for (int64_t i = 0; i < n; ++i) {
    T value;
    memcpy(&value, raw + i * sizeof value, sizeof value);
    if (none && value == T(noTarget)) {
      out[i] = noTarget;
      continue;
    }
    // A negative number becomes too large by the conversion to unsigned.
    if (uint64_t(int64_t(value)) >= uint64_t(vocabulary))
      return i;
    out[i] = int32_t(value);
  }
  return n;
}

int64_t convert(const TokenFormat &format, const char *raw, int64_t n, int64_t vocabulary, bool none, int32_t *out) {
  switch (format.bytes * 2 + format.isSigned) {
  case 2:
    return convert<uint8_t>(raw, n, vocabulary, none, out);
  case 3:
    return convert<int8_t>(raw, n, vocabulary, none, out);
  case 4:
    return convert<uint16_t>(raw, n, vocabulary, none, out);
  case 5:
    return convert<int16_t>(raw, n, vocabulary, none, out);
  case 8:
    return convert<uint32_t>(raw, n, vocabulary, none, out);
  case 9:
    return convert<int32_t>(raw, n, vocabulary, none, out);
  case 16:
    return convert<uint64_t>(raw, n, vocabulary, none, out);
  default:
    return convert<int64_t>(raw, n, vocabulary, none, out);
  }
}

/// A number as messages show it. An unsigned number with its highest bit set is also shown as a negative one.
std::string describeToken(const TokenFormat &format, const char *raw) {
  uint64_t bits = 0;
  memcpy(&bits, raw, size_t(format.bytes));
  int unused = 64 - 8 * format.bytes;
  int64_t asSigned = int64_t(bits << unused) >> unused;
  if (format.isSigned)
    return std::to_string(asSigned);
  return std::to_string(bits) +
         (format.bytes >= 4 && asSigned < 0 ? " (" + std::to_string(asSigned) + " if signed)" : "");
}

/// Returns true if files of this format can say that a target does not count; unsigned bytes, which are text, cannot.
bool canBeNone(const TokenFormat &format) { return format.bytes > 1 || format.isSigned; }

} // namespace

TokenFile::TokenFile(const std::string &spec) : name(spec) {
  auto has = [&](const char *prefix) { return spec.compare(0, strlen(prefix), prefix) == 0; };
  bool text = has("text:"), wide = has("u32:");
  file = InputFile(text || wide ? spec.substr(spec.find(':') + 1) : spec);
  int32_t header[3] = {};
  file.read(0, std::min<int64_t>(sizeof header, file.size()), header);
  const auto *bin = std::find_if(std::begin(binFormats), std::end(binFormats),
                                 [&](const auto &known) { return known.magic == header[0]; });
  if (text) {
    format = {0, 1, false};
    tokens = file.size();
  } else if (wide) {
    if (bin != std::end(binFormats) || isNpy(file))
      fail(PCRT_BAD_DATA, path() + ": the header already gives the width of the numbers; leave out u32:");
    format = openRaw(file, 4);
    tokens = file.size() / 4;
  } else if (bin != std::end(binFormats)) {
    if (header[1] != bin->version)
      fail(PCRT_BAD_DATA, path() + ": version " + std::to_string(header[1]) +
                              " of the .bin format is not supported, only " + std::to_string(bin->version));
    format = {binHeaderBytes, bin->bytes, false};
    tokens = header[2];
    if (tokens < 0 || file.size() < format.start + tokens * format.bytes)
      fail(PCRT_BAD_DATA, path() + ": the header says " + std::to_string(tokens) + " tokens, but the file has " +
                              std::to_string(file.size()) + " bytes");
  } else if (isNpy(file)) {
    format = openNpy(file, &tokens);
  } else {
    format = openRaw(file, 2);
    isRaw16 = true;
    tokens = file.size() / 2;
  }
  if (tokens < 2)
    fail(PCRT_BAD_DATA, path() + ": the data is empty or too short (" + std::to_string(tokens) +
                            " tokens, but at least a token and its target are needed)");
}

void TokenFile::checkVocabulary(int64_t vocabulary) const {
  if (isRaw16 && vocabulary > 1 << 16)
    fail(PCRT_BAD_DATA, path() + ": raw 16-bit numbers are too small for a vocabulary of " +
                            std::to_string(vocabulary) + "; if the numbers have 32 bits, use u32:" + path() +
                            ", and otherwise save them as .npy");
}

void TokenFile::read(int64_t position, int64_t n, int64_t vocabulary, int32_t *out, bool areTargets) const {
  constexpr int64_t noneIn16 = uint16_t(noTarget);
  if (areTargets && format.bytes == 2 && !format.isSigned && vocabulary > noneIn16)
    fail(PCRT_BAD_DATA, path() + ": in 16-bit targets, " + std::to_string(noneIn16) + " stands for " +
                            std::to_string(noTarget) + ", but targets below " + std::to_string(vocabulary) +
                            " also contain it; use u32:FILE, or .npy with wider numbers");
  char raw[1 << 15];
  for (int64_t done = 0; done < n;) {
    int64_t at = (position + done) % tokens;
    int64_t now = std::min({n - done, tokens - at, int64_t(sizeof raw) / format.bytes});
    file.read(format.start + at * format.bytes, now * format.bytes, raw);
    int64_t good = convert(format, raw, now, vocabulary, areTargets && canBeNone(format), out + done);
    if (good < now)
      fail(PCRT_BAD_DATA,
           file.path() + (areTargets ? ": target " : ": token ") + describeToken(format, raw + good * format.bytes) +
               " at position " + std::to_string(at + good) +
               (areTargets ? " is not below " : " is not in the vocabulary of ") + std::to_string(vocabulary) +
               (areTargets ? " and is not " + std::to_string(noTarget) : ""));
    done += now;
  }
}

std::vector<std::string> pcrt::filesOf(const std::string &pattern, const std::string &flag) {
  std::error_code error;
  if (pattern.find_first_of("*?[") == std::string::npos || std::filesystem::exists(pattern, error))
    return {pattern};
  glob_t found = {};
  int result = glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> files;
  for (size_t i = 0; result == 0 && i < found.gl_pathc; ++i)
    files.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  if (files.empty())
    fail(PCRT_BAD_DATA, flag + " " + pattern + ": no file matches the pattern");
  return files;
}

/// Returns the files that an item of a flag names, each with the prefix of its format.
static std::vector<std::string> expand(const std::string &item, const char *flag = "--data") {
  size_t start = item.compare(0, 4, "u32:") == 0 ? 4 : item.compare(0, 5, "text:") == 0 ? 5 : 0;
  std::vector<std::string> files = filesOf(item.substr(start), flag);
  for (std::string &file : files)
    file.insert(0, item, 0, start);
  return files;
}

/// Removes the weight from "FILE*0.7" and returns it, or 0 if there is no weight.
static double cutWeight(std::string &item) {
  size_t star = item.rfind('*');
  if (star == std::string::npos || star + 1 == item.size())
    return 0;
  char *end = nullptr;
  double weight = strtod(item.c_str() + star + 1, &end);
  if (*end)
    return 0;
  if (!(weight > 0) || std::isinf(weight))
    fail(PCRT_USAGE, "--data " + item + ": a weight must be a number above 0");
  item.resize(star);
  return weight;
}

/// Splits at commas, unless the whole text is the name of a file.
static std::vector<std::string> split(const std::string &text) {
  std::error_code error;
  if (std::filesystem::exists(text.substr(text.find(':') + 1), error))
    return {text};
  std::vector<std::string> parts(1);
  for (char c : text)
    c == ',' ? (void)parts.emplace_back() : parts.back().push_back(c);
  return parts;
}

TokenData::TokenData(const Options &options, int64_t sequence, bool training, int64_t targetSequence)
    : sequence(sequence), targetSequence(targetSequence ? targetSequence : sequence) {
  std::vector<std::string> items = split(options.data);
  int64_t extra = options.targets.empty(); // the target of a window's last token
  std::vector<SampleOrder::Source> sources;
  size_t weighted = 0;
  double total = 0;
  for (std::string item : items) {
    double weight = items.size() == 1 ? 0 : cutWeight(item);
    weighted += weight > 0;
    total += weight;
    if (weight > 0 || sources.empty()) {
      first.push_back(int(all.size()));
      sources.push_back({{}, weight > 0 ? weight : 1});
    }
    for (const std::string &file : expand(item)) {
      weightOf.push_back(weight);
      sources.back().windows.push_back((all.emplace_back(file).count() - extra) / sequence);
    }
  }
  openTargets(options);
  if (weighted && weighted != items.size())
    fail(PCRT_USAGE, "--data " + options.data + ": either all files or none must have a weight");
  if (all.size() == 1)
    weightOf = {1};
  if (all.size() == 1 && !options.shuffle && !options.validation.every)
    return;
  for (size_t s = 0; s < sources.size(); ++s) {
    if (weighted && sources[s].weight < total / double(SampleOrder::period))
      fail(PCRT_USAGE, "--data: the weight of " + items[s] + " is less than a thousandth of the total; leave it out");
    for (size_t i = 0; i < sources[s].windows.size(); ++i)
      if (sources[s].windows[i] == 0)
        fail(PCRT_BAD_DATA, all[size_t(first[s]) + i].path() + ": its " +
                                std::to_string(all[size_t(first[s]) + i].count()) + " tokens are fewer than the " +
                                std::to_string(sequence + extra) +
                                (extra ? " of a sample and its last target" : " of a sample"));
  }
  HeldOut heldOut = options.validation;
  bool readsHeldOut = heldOut.every && !training;
  order.emplace(std::move(sources), options.shuffle, options.seed, heldOut, readsHeldOut);
  for (size_t s = 0; s < first.size(); ++s)
    if (order->windows(int(s)) == 0)
      fail(PCRT_BAD_DATA, all[size_t(first[s])].path() + ": no sample of " + std::to_string(sequence) +
                              " tokens remains to be read with --validation 1/" + std::to_string(heldOut.every));
}

int64_t TokenData::windows() const {
  if (!order)
    return (all[0].count() - int64_t(targetsOf.empty())) / sequence;
  int64_t windows = 0;
  for (size_t s = 0; s < first.size(); ++s)
    windows += order->windows(int(s));
  return windows;
}

void TokenData::openTargets(const Options &options) {
  if (options.targets.empty())
    return;
  for (const std::string &item : split(options.targets))
    for (const std::string &file : expand(item, "--targets"))
      targetsOf.emplace_back(file);
  if (targetsOf.size() != all.size())
    fail(PCRT_USAGE, "--targets names " + std::to_string(targetsOf.size()) + " files, but --data names " +
                         std::to_string(all.size()) +
                         "; give one file of targets for each file of tokens, in the same order");
  for (size_t i = 0; i < all.size(); ++i)
    if (__int128(targetsOf[i].count()) * sequence != __int128(all[i].count()) * targetSequence)
      fail(PCRT_BAD_DATA, targetsOf[i].path() + " has " + std::to_string(targetsOf[i].count()) +
                              " targets, but the number of its tokens in " + all[i].path() + " is " +
                              std::to_string(all[i].count()) +
                              (sequence == targetSequence ? ""
                                                          : ", and a sample of " + std::to_string(sequence) + " has " +
                                                                std::to_string(targetSequence) + " targets"));
}

TokenData::Window TokenData::windowOf(int64_t sample) const {
  Window window;
  int64_t number = sample;
  if (order) {
    SampleOrder::Place place = order->of(sample);
    window.file = size_t(first[size_t(place.source)]) + size_t(place.file);
    number = place.window;
  }
  // If one file is read in order, a window may begin beyond the end of the file. In a very long run, its position may
  // even exceed int64.
  auto start = [&](const TokenFile &file, int64_t length) { return int64_t(__int128(number) * length % file.count()); };
  window.token = start(all[window.file], sequence);
  window.target = targetsOf.empty() ? window.token + 1 : start(targetsOf[window.file], targetSequence);
  return window;
}

void TokenData::read(int64_t sample, int64_t vocabulary, int64_t classes, int32_t *tokens, int32_t *targets) const {
  Window window = windowOf(sample);
  if (targetsOf.empty()) {
    all[window.file].read(window.token, sequence + 1, vocabulary, tokens);
    std::copy_n(tokens + 1, sequence, targets);
  } else {
    all[window.file].read(window.token, sequence, vocabulary, tokens);
    targetsOf[window.file].read(window.target, targetSequence, classes, targets, /*areTargets=*/true);
  }
}

std::string TokenData::describe(int64_t firstSample, int64_t count) const {
  constexpr int most = 8; // pieces of files
  std::string text;
  size_t file = 0;
  int pieces = 0;
  for (int64_t sample = firstSample; sample < firstSample + count; ++pieces) {
    if (pieces == most)
      return text + " and " + std::to_string(firstSample + count - sample) + " more samples";
    Window window = windowOf(sample);
    const TokenFile &of = (targetsOf.empty() ? all : targetsOf)[window.file];
    int64_t end = window.target;
    for (; sample < firstSample + count; ++sample, end += targetSequence)
      if (Window next = windowOf(sample); next.file != window.file || next.target != end)
        break;
    if (pieces == 0 || window.file != file)
      text += (pieces ? ", " : "") + of.path() + " at positions ";
    else
      text += ", ";
    file = window.file;
    text += std::to_string(window.target % of.count()) + " to " + std::to_string((end - 1) % of.count());
  }
  return text;
}

std::vector<SampleData::File> TokenData::filesRead() const {
  std::vector<File> files;
  for (size_t i = 0; i < all.size(); ++i)
    files.push_back({"--data", all[i].spec(), all[i].path(), all[i].count(), weightOf[i]});
  for (const TokenFile &file : targetsOf)
    files.push_back({"--targets", "targets " + file.spec(), file.path(), file.count()});
  return files;
}

std::unique_ptr<Loader> TokenData::loader(const Program &program, int rank, MeanOver meanOver) const {
  return std::make_unique<BatchLoader>(program, *this, rank, meanOver);
}

std::unique_ptr<SampleData> pcrt::openSamples(const Options &options, const Program &program, bool training) {
  if (hasInput(program, "data"))
    return std::make_unique<Arrays>(options, program, training);
  return std::make_unique<TokenData>(options, program.sequence, training, program.targetSequence);
}

bool pcrt::hasInput(const Program &program, const std::string &kind) {
  return std::any_of(program.stages.begin(), program.stages.end(), [&](const Program *stage) {
    return std::any_of(stage->inputs.begin(), stage->inputs.end(),
                       [&](const Input &input) { return input.kind == kind; });
  });
}

BatchLoader::BatchLoader(const Program &program, const TokenData &data, int rank, MeanOver meanOver)
    : program(program), data(data), tokens(size_t(program.batch * program.sequence + 1)),
      targets(size_t(program.batch * program.targetSequence)), classes(program.vocabulary),
      isWeighted(hasInput(program, "loss_weights")), meanOver(meanOver) {
  targetsCounted.resize(size_t(program.rounds.replicas));
  for (const Program *stage : program.stages)
    for (const Input &input : stage->inputs)
      if (input.kind == "targets" && input.below)
        classes = input.below;
  for (const TokenFile &file : data.files())
    file.checkVocabulary(program.vocabulary);
  for (const TokenFile &file : data.targets())
    file.checkVocabulary(classes);
  for (const Input &input : program.inputs) {
    if (input.kind == "starts" || input.kind == "positions") {
      starts.resize(tokens.size() - 1);
      endOfDocument = input.key;
    }
    blocks.push_back(input.isOn(program.mesh, rank) ? blockOf(program.mesh, input.shape, input.layout, rank)
                                                    : Block{{0, 0, 0}, {0, 0, 0}});
  }
}

/// Writes this rank's part of an input with one number per token or target; `of` gives the number of an element of the
/// batch.
template <typename T, typename F>
static void fillBlock(const Program &program, const Input &input, const Block &block, char *to, F of) {
  T *out = reinterpret_cast<T *>(to);
  int64_t length = input.isByTarget() ? program.targetSequence : program.sequence;
  for (int64_t microbatch = 0; microbatch < block.size[0]; ++microbatch)
    for (int64_t row = 0; row < block.size[1]; ++row)
      for (int64_t column = 0; column < block.size[2]; ++column) {
        int64_t globalRow = rowOf(program, microbatch + block.start[0], row + block.start[1]);
        *out++ = of(size_t(globalRow * length + program.position(column + block.start[2])));
      }
}

void BatchLoader::countTargets(Samples samples) {
  if (isWeighted)
    std::fill(targets.begin() + samples.count * program.targetSequence, targets.end(), noTarget);
  int64_t ofReplica = int64_t(targets.size() / targetsCounted.size());
  for (size_t replica = 0; replica < targetsCounted.size(); ++replica) {
    auto begin = targets.begin() + int64_t(replica) * ofReplica;
    targetsCounted[replica] = ofReplica - std::count(begin, begin + ofReplica, noTarget);
  }
  auto none = isWeighted ? targets.end() : std::find(targets.begin(), targets.end(), noTarget);
  if (none != targets.end())
    fail(PCRT_BAD_DATA,
         "there is a target that does not count (" + std::to_string(noTarget) + ") in " +
             data.describe(samples.first + (none - targets.begin()) / program.targetSequence % samples.count, 1) +
             ", but the loss of this program is the mean over all targets; import the model again with pc-import");
  if (meanOver == MeanOver::Batch) {
    int64_t sum = std::accumulate(targetsCounted.begin(), targetsCounted.end(), int64_t(0));
    std::fill(targetsCounted.begin(), targetsCounted.end(), isWeighted ? sum : samples.count * program.targetSequence);
  }
}

void BatchLoader::findStarts() {
  int32_t start = 0;
  for (size_t at = 0; at < starts.size(); ++at) {
    auto position = int32_t(int64_t(at) % program.sequence);
    if (position == 0 || tokens[at - 1] == endOfDocument)
      start = position;
    starts[at] = start;
  }
}

void BatchLoader::fill(Samples samples, char *const *inputs) {
  for (int64_t row = 0; row < program.batch; ++row)
    data.read(samples.first + row % samples.count, program.vocabulary, classes, &tokens[size_t(row * program.sequence)],
              &targets[size_t(row * program.targetSequence)]);
  countTargets(samples);
  findStarts();
  size_t ofReplica = targets.size() / targetsCounted.size();
  // The loss that a run reports is the mean of the replicas' losses.
  auto parts = float(meanOver == MeanOver::Batch ? targetsCounted.size() : 1);
  auto weight = [&](size_t at) { return parts / float(targetsCounted[at / ofReplica]); };
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Input &input = program.inputs[i];
    auto fill = [&](auto of) { fillBlock<decltype(of(0))>(program, input, blocks[i], inputs[i], of); };
    if (input.kind == "tokens")
      fill([&](size_t at) { return tokens[at]; });
    else if (input.kind == "targets") // the value of a target with weight 0 does not matter
      fill([&](size_t at) { return std::max(targets[at], 0); });
    else if (input.kind == "loss_weights")
      fill([&](size_t at) { return targets[at] == noTarget ? 0 : weight(at); });
    else if (input.kind == "shifted")
      fill([&](size_t at) {
        bool isFirst = int64_t(at) % program.targetSequence == 0;
        return isFirst || targets[at - 1] == noTarget ? int32_t(input.key) : targets[at - 1];
      });
    else if (input.kind == "starts")
      fill([&](size_t at) { return starts[at]; });
    else if (input.kind == "positions")
      fill([&](size_t at) { return int32_t(int64_t(at) % program.sequence) - starts[at]; });
  }
}
