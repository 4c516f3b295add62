//===- Routing.cpp - Choices of experts in files --------------------------===//
// Neighbouring tokens of a block are also neighbours in a file, except in zigzag order, so reads and writes are few.
// The header has a fixed length and says how many steps are complete.
//===----------------------------------------------------------------------===//
#include "data/Routing.h"
#include "base/Failure.h"
#include "base/TensorSum.h"
#include "comm/Collective.h"
#include "data/Data.h"
#include "pcrt/description.h"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace pcrt;

static constexpr const char *format = "pc-routing";

/// The bytes of an expert's number, which is an unsigned integer.
static int64_t widthFor(int64_t experts) { return experts <= 256 ? 1 : 2; }

Routing::Routing(const Program &program, Comm &comm, const std::string &from, const std::string &to, int64_t firstStep,
                 int64_t endStep)
    : program(program), comm(comm), layers(program.outputs.size()), firstStep(firstStep) {
  const std::string flag = from.empty() ? "--dump-routing" : "--routing";
  std::set<int64_t> all;
  for (const Program *stage : program.stages)
    for (const Output &output : stage->outputs) {
      if (output.kind != PCRT_ROUTING)
        continue;
      if (!all.empty() && (output.shape[2] != experts || output.chosen != chosen))
        fail(PCRT_USAGE, flag + ": the layers of this model have different numbers of experts");
      experts = output.shape[2], chosen = output.chosen;
      all.insert(output.layer);
    }
  if (all.empty())
    fail(PCRT_USAGE, flag + ": this model has no mixture of experts");
  if (experts > 65536)
    fail(PCRT_USAGE, flag + ": layers of more than 65536 experts have no file");
  numbers.assign(all.begin(), all.end());
  std::string means = program.configMeans.dump();
  modelSum = sumOfBytes(means.data(), int64_t(means.size())).text();
  int64_t most = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Output &output = program.outputs[i];
    if (output.kind != PCRT_ROUTING)
      continue;
    Dims shape = output.shape;
    shape[0] /= program.microbatches;
    Layer &layer = layers[i];
    layer.place = std::lower_bound(numbers.begin(), numbers.end(), output.layer) - numbers.begin();
    layer.block = blockOf(program.mesh, shape, output.layout, comm.rank());
    layer.writes = output.isOn(program.mesh, comm.rank()) &&
                   holderOf(program.mesh, output.layout, comm.rank(), {program.stageAxis}).index == 0;
    most = std::max(most, layer.block.size[0] * layer.block.size[1] * chosen);
  }
  buffer.resize(size_t(most) * 8);
  targetWidth = widthFor(experts);
  if (!from.empty())
    onAllRanks(comm, [&] { openSource(from, endStep); });
  if (to.empty())
    return;
  targetPath = to;
  for (bool isFirst : {true, false})
    onAllRanks(comm, [&] {
      if ((comm.rank() == 0) == isFirst)
        openTarget();
    });
}

Routing::~Routing() {
  if (target >= 0)
    close(target);
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

void Routing::openSource(const std::string &path, int64_t endStep) {
  auto wrong = [&](const std::string &what) { fail(PCRT_BAD_DATA, "--routing " + path + ": " + what); };
  source = Safetensors::open(path);
  stored = source->find("routing");
  if (!stored)
    wrong("it has no tensor 'routing'");
  static const std::pair<const char *, int64_t> widths[] = {{"U8", 1}, {"U16", 2}, {"I32", 4}, {"I64", 8}};
  for (auto [dtype, width] : widths)
    if (stored->dtype == dtype)
      sourceWidth = width;
  if (!sourceWidth)
    wrong("its tensor has type " + stored->dtype + ", but U8, U16, I32 or I64 is needed");
  const Dims &shape = stored->shape;
  Dims wanted = {0, int64_t(numbers.size()), program.batch, program.sequence, chosen};
  static const char *const names[] = {"", "layers with experts", "sequences in a batch", "tokens in a sequence",
                                      "experts of a token"};
  if (shape.size() != wanted.size())
    wrong("its tensor is " + describe(shape) + ", not [steps, layers, batch, sequence, experts of a token]");
  for (size_t dim = 1; dim < wanted.size(); ++dim)
    if (shape[dim] != wanted[dim])
      wrong("it is for " + std::to_string(shape[dim]) + " " + names[dim] + ", but this program has " +
            std::to_string(wanted[dim]));
  auto said = [&](const char *key) {
    auto found = source->metadata().find(key);
    return found == source->metadata().end() ? std::string() : found->second;
  };
  auto mustBe = [&](const char *key, const std::string &value, const char *what) {
    if (!said(key).empty() && said(key) != value)
      wrong(std::string("it is for ") + what + " " + said(key) + ", but this program has " + value);
  };
  mustBe("layers", layerList(), "layers");
  mustBe("experts", std::to_string(experts), "experts");
  mustBe("model_sum", modelSum, "a model with checksum");
  if (std::string first = said("first_step"); !first.empty()) {
    char *end = nullptr;
    errno = 0;
    sourceFirst = strtoll(first.c_str(), &end, 10);
    if (*end || errno || sourceFirst < 0)
      wrong("its first_step is '" + first + "', which is not a step number");
  }
  if (firstStep < endStep && (firstStep < sourceFirst || endStep - sourceFirst > shape[0]))
    wrong("it has " + std::to_string(shape[0]) + " steps, starting at step " + std::to_string(sourceFirst) +
          ", but the run needs steps " + std::to_string(firstStep) + " to " + std::to_string(endStep - 1));
}

/// The header of a file of `steps` steps. Its length does not depend on `steps`.
std::string Routing::header(int64_t steps) const {
  Dims shape = {steps, int64_t(numbers.size()), program.batch, program.sequence, chosen};
  Json json = {{"__metadata__",
                {{"format", format},
                 {"first_step", std::to_string(targetFirst)},
                 {"layers", layerList()},
                 {"experts", std::to_string(experts)},
                 {"model", program.name},
                 {"model_sum", modelSum}}},
               {"routing",
                {{"dtype", targetWidth == 1 ? "U8" : "U16"},
                 {"shape", shape},
                 {"data_offsets", {0, product(shape) * targetWidth}}}}};
  std::string text = json.dump();
  text.resize(size_t(headerBytes()) - 8, ' ');
  std::string bytes;
  for (int i = 0; i < 8; ++i)
    bytes += char(uint64_t(text.size()) >> 8 * i);
  return bytes + text;
}

int64_t Routing::headerBytes() const {
  return (int64_t(layerList().size() + program.name.size()) + 1024 + 4095) / 4096 * 4096;
}

/// The layers as text: "0,1,3".
std::string Routing::layerList() const {
  std::string list;
  for (int64_t number : numbers)
    list += (list.empty() ? "" : ",") + std::to_string(number);
  return list;
}

int64_t Routing::choicesOfStep() const { return int64_t(numbers.size()) * program.batch * program.sequence * chosen; }

/// Returns how many of the steps before `firstStep` the file already has, and sets `targetFirst`, the first step in the
/// file. The file of another run is replaced.
int64_t Routing::stepsBefore() {
  std::string text(size_t(headerBytes()), '\0');
  struct stat file;
  targetFirst = firstStep;
  if (pread(target, text.data(), text.size(), 0) != ssize_t(text.size()) || fstat(target, &file) != 0)
    return 0;
  Json json = Json::parse(text.begin() + 8, text.end(), nullptr, /*allow_exceptions=*/false);
  try {
    int64_t steps = json.at("routing").at("shape").at(0);
    targetFirst = strtoll(json.at("__metadata__").at("first_step").get<std::string>().c_str(), nullptr, 10);
    bool goesOn = header(steps) == text && targetFirst <= firstStep && firstStep <= targetFirst + steps &&
                  file.st_size >= headerBytes() + steps * choicesOfStep() * targetWidth;
    if (goesOn)
      return firstStep - targetFirst;
  } catch (const Json::exception &) {
  }
  targetFirst = firstStep;
  return 0;
}

/// Rank 0 creates or continues the file; the others open it then.
void Routing::openTarget() {
  bool makes = comm.rank() == 0;
  target = open(targetPath.c_str(), O_RDWR | O_CLOEXEC | (makes ? O_CREAT : 0), 0666);
  if (target < 0)
    fail(PCRT_RESOURCE, withErrno("cannot write " + targetPath));
  int64_t steps = stepsBefore();
  if (!makes)
    return;
  if (ftruncate(target, headerBytes() + steps * choicesOfStep() * targetWidth) != 0)
    fail(PCRT_RESOURCE, withErrno("cannot write " + targetPath));
  writeHeader(steps);
}

void Routing::writeHeader(int64_t steps) {
  std::string text = header(steps);
  if (pwrite(target, text.data(), text.size(), 0) != ssize_t(text.size()))
    fail(PCRT_RESOURCE, withErrno("cannot write " + targetPath));
}

/// Calls f, which writes to the file; if it fails, the file ends and the run continues.
template <typename F> void Routing::attempt(F f) {
  try {
    f();
  } catch (const Failure &failure) {
    problem = failure;
  }
}

void Routing::shareProblem() {
  problem = firstFailure(comm, problem);
  if (!problem)
    return;
  close(std::exchange(target, -1));
  if (comm.rank() == 0)
    fprintf(stderr, "pc: warning: %s; the file contains the steps so far, and the run continues without it\n",
            problem->message.c_str());
}

void Routing::endStep() {
  if (target < 0)
    return;
  shareProblem();
  if (target >= 0 && comm.rank() == 0)
    attempt([&] { writeHeader(step + 1 - targetFirst); }); // an error is shared with the other ranks at the next step
}

void Routing::finish() {
  if (target < 0)
    return;
  attempt([&] {
    if (fsync(target) != 0 && errno != EINVAL)
      fail(PCRT_RESOURCE, withErrno("cannot write " + targetPath));
  });
  shareProblem();
}

//===----------------------------------------------------------------------===//
// Choices
//===----------------------------------------------------------------------===//

/// Calls f(token of the block, row of the batch, position, tokens) for tokens that are also neighbours in a file.
template <typename F> void Routing::forEachRun(const Layer &layer, int64_t microbatch, F f) const {
  int64_t rows = layer.block.size[0], columns = layer.block.size[1];
  int64_t first = rowOf(program, microbatch, layer.block.start[0]), column = layer.block.start[1];
  if (columns == program.sequence && !program.zigzag)
    return f(0, first, 0, rows * columns);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t begin = 0, end = 0; begin < columns; begin = end) {
      int64_t position = program.position(column + begin);
      for (end = begin + 1; end < columns && program.position(column + end) == position + end - begin;)
        ++end;
      f(row * columns + begin, first + row, position, end - begin);
    }
}

/// The index in a file of a token's first choice, `steps` steps after the file's first step.
int64_t Routing::choiceAt(int64_t steps, const Layer &layer, int64_t row, int64_t position) const {
  int64_t tokens = (layer.place * program.batch + row) * program.sequence + position;
  return steps * choicesOfStep() + tokens * chosen;
}

void Routing::take(const Layer &layer, int64_t microbatch, float *mask) {
  forEachRun(layer, microbatch, [&](int64_t token, int64_t row, int64_t position, int64_t count) {
    int64_t at = choiceAt(step - sourceFirst, layer, row, position), choices = count * chosen;
    stored->from->read(stored->offset + at * sourceWidth, choices * sourceWidth, buffer.data());
    float *of = mask + token * experts;
    memset(of, 0, size_t(count * experts) * sizeof(float));
    for (int64_t i = 0; i < choices; ++i) {
      int64_t expert = 0;
      memcpy(&expert, buffer.data() + i * sourceWidth, size_t(sourceWidth)); // little endian
      if (sourceWidth == 4)
        expert = int32_t(expert);
      float *entry = of + i / chosen * experts + expert;
      bool isThere = expert >= 0 && expert < experts;
      if (isThere && *entry == 0) {
        *entry = 1;
        continue;
      }
      int64_t flat = row * program.sequence + position + i / chosen;
      fail(PCRT_BAD_DATA,
           "--routing " + stored->file + ": step " + std::to_string(step) + ", layer " +
               std::to_string(numbers[size_t(layer.place)]) + ", sequence " + std::to_string(flat / program.sequence) +
               ", token " + std::to_string(flat % program.sequence) + ": expert " + std::to_string(expert) +
               (isThere ? " is listed twice" : ", but the layer has " + std::to_string(experts) + " experts"));
    }
  });
}

void Routing::write(const Layer &layer, int64_t microbatch, const float *mask) {
  forEachRun(layer, microbatch, [&](int64_t token, int64_t row, int64_t position, int64_t count) {
    unsigned char *to = buffer.data();
    for (int64_t i = 0; i < count; ++i) {
      const float *of = mask + (token + i) * experts;
      int64_t found = 0;
      for (int64_t expert = 0; expert < experts; ++expert)
        if (of[expert] != 0 && found++ < chosen) {
          memcpy(to, &expert, size_t(targetWidth)); // little endian
          to += targetWidth;
        }
      if (found != chosen) // the logits are NaN
        fail(PCRT_NON_FINITE, "--dump-routing: step " + std::to_string(step) + ", layer " +
                                  std::to_string(numbers[size_t(layer.place)]) + ": a token has " +
                                  std::to_string(found) + " experts instead of " + std::to_string(chosen));
    }
    int64_t at = headerBytes() + choiceAt(step - targetFirst, layer, row, position) * targetWidth;
    for (const unsigned char *from = buffer.data(); from < to;) {
      ssize_t done = pwrite(target, from, size_t(to - from), at);
      if (done < 0 && errno == EINTR)
        continue;
      if (done <= 0)
        fail(PCRT_RESOURCE, withErrno("cannot write " + targetPath));
      from += done, at += done;
    }
  });
}

pcrt_status Routing::observe(int index, int64_t microbatch, float *mask, std::string *error) {
  const Layer &layer = layers[size_t(index)];
  try {
    if (stored)
      take(layer, microbatch, mask);
    if (target >= 0 && layer.writes && !problem)
      attempt([&] { write(layer, microbatch, mask); });
    return PCRT_OK;
  } catch (const Failure &failure) {
    *error = failure.message;
    return failure.status;
  }
}
