//===- Profile.cpp - The time of each kind of call in a step --------------===//
// Traces have the JSON format of Chrome's trace events ("X" events, one process per rank; Trace Event Format, Google
// 2016). Rank 0 gathers all events and writes the file in pieces.
//===----------------------------------------------------------------------===//
#include "device/Profile.h"
#include "base/Failure.h"
#include "base/FileStream.h"
#include "comm/Collective.h"
#include "pcrt/outputs.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

using namespace pcrt;

int64_t pcrt::nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t(1000000000) + now.tv_nsec;
}

Profile::Profile(const pcrt_program &program) {
  for (int i = 0; i < program.num_kernels; ++i)
    kindOfKernel.push_back(kindNamed(program.kernels[i].kind));
  gemmKind = kindNamed("gemm");
  moveKind = kindNamed("move");
  attentionKind = kindNamed("attention");
  if (program.num_flows)
    messageKind = kindNamed("message");
}

const char *pcrt::taskName(int32_t kind) {
  static constexpr const char *names[] = {"forward", "recompute", "backward", "weight", "optimizer"};
  return kind >= 0 && kind < 5 ? names[kind] : "task";
}

void pcrt::describeTask(char (&text)[96], int32_t kind, int32_t chunk, int32_t microbatch, int32_t stage) {
  if (kind == PCRT_OPTIMIZER)
    snprintf(text, sizeof text, "the optimizer (stage %d)", stage);
  else
    snprintf(text, sizeof text, "%s of microbatch %d, chunk %d (stage %d)", taskName(kind), microbatch, chunk, stage);
}

void Profile::task(int32_t kind, int32_t chunk, int32_t microbatch) {
  if (paused)
    return;
  int64_t now = nanoseconds();
  if (currentTask >= 0 && numEvents < capacity)
    events[numEvents++] = {int32_t(Call::Task), currentTask, taskStart, now};
  currentTask = packTask(kind, chunk, microbatch);
  taskStart = now;
}

void Profile::endTask() {
  if (paused)
    return;
  if (currentTask >= 0 && numEvents < capacity)
    events[numEvents++] = {int32_t(Call::Task), currentTask, taskStart, nanoseconds()};
  currentTask = -1;
}

int Profile::kindNamed(const char *name) {
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].name == name)
      return int(i);
  all.push_back({name, 0, 0});
  return int(all.size() - 1);
}

void Profile::book(Call call, int32_t index, int64_t start) { add(call, index, start, nanoseconds()); }

void Profile::add(Call call, int32_t index, int64_t start, int64_t end) {
  if (paused)
    return;
  if (call != Call::Task) {
    Kind &kind = all[call == Call::Kernel                          ? kindOfKernel[index]
                     : call == Call::Gemm                          ? gemmKind
                     : call == Call::Attention                     ? attentionKind
                     : call == Call::Send || call == Call::Receive ? messageKind
                                                                   : moveKind];
    ++kind.calls;
    kind.nanoseconds += end - start;
  }
  if (numEvents < capacity)
    events[numEvents++] = {int32_t(call), index, start, end};
}

void Profile::startTrace(int64_t wanted) {
  events.reset(new Event[wanted]); // not initialized, so that only used pages take memory
  capacity = wanted;
  numEvents = 0;
}

/// A JSON string. Names come from the program's source: quotes and backslashes are escaped, control characters become
/// blanks.
static std::string quoted(const char *name) {
  std::string text = "\"";
  for (; name && *name; ++name) {
    if (*name == '"' || *name == '\\')
      text += '\\';
    text += (unsigned char)*name < 32 ? ' ' : *name;
  }
  return text + "\"";
}

namespace {
/// The texts and the row of an event in a trace.
struct Shown {
  std::string name, category;
  int row = 0; ///< 1: above the calls.
};
} // namespace

static Shown show(const pcrt_program &program, Profile::Call call, int32_t index) {
  auto text = [](const char *name) { return std::string(name ? name : ""); };
  switch (call) {
  case Profile::Call::Kernel:
    return {text(program.kernels[index].name), text(program.kernels[index].kind)};
  case Profile::Call::Gemm:
    return {text(program.gemms[index].name), "gemm"};
  case Profile::Call::Attention:
    return {text(program.attentions[index].name), "attention"};
  case Profile::Call::Move:
    return {text(program.moves[index].name), "move"};
  case Profile::Call::Start:
    return {"start " + text(program.moves[index].name), "move"};
  case Profile::Call::Wait:
    return {"wait for " + text(program.moves[index].name), "move"};
  case Profile::Call::Send:
    return {"send " + text(program.flows[index].name), "message"};
  case Profile::Call::Receive:
    return {"receive " + text(program.flows[index].name), "message"};
  case Profile::Call::Task:
    break;
  }
  std::string name = taskName(index & 7), chunk = std::to_string(index >> 3 & 1023);
  if ((index & 7) == PCRT_OPTIMIZER)
    return {name, name, 1};
  return {name + " " + std::to_string(index >> 13) + (chunk == "0" ? "" : " of chunk " + chunk), name, 1};
}

void Profile::writeTrace(const std::string &path, Comm &comm,
                         const std::function<const pcrt_program &(int)> &programOf) const {
  int64_t most = 0;
  std::vector<int64_t> counts(comm.size());
  requireOk(comm, comm.allGatherBytes(&numEvents, sizeof numEvents, counts.data()));
  for (int64_t count : counts)
    most = std::max(most, count);
  std::vector<Event> mine(events.get(), events.get() + numEvents), gathered(most * comm.size());
  mine.resize(most, {-1, 0, 0, 0});
  requireOk(comm, comm.allGatherBytes(mine.data(), most * int64_t(sizeof(Event)), gathered.data()));
  if (comm.rank() != 0)
    return;
  OutputFile output;
  bool good = output.open(path);
  std::string text = "{\"traceEvents\": [\n";
  int64_t written = 0;
  auto flush = [&] {
    good = good && writeAll(output.descriptor(), text.data(), int64_t(text.size()), written);
    written += int64_t(text.size());
    text.clear();
  };
  int64_t origin = INT64_MAX;
  for (const Event &event : gathered)
    if (event.call >= 0)
      origin = std::min(origin, event.start);
  for (int rank = 0; rank < comm.size(); ++rank) {
    const pcrt_program &theirs = programOf(rank);
    std::string name = "rank " + std::to_string(rank);
    if (theirs.num_stages)
      name += " (stage " + std::to_string(theirs.stage) + ")";
    text += (rank ? ",\n" : "") + std::string("{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": ") +
            std::to_string(rank) + ", \"args\": {\"name\": \"" + name + "\"}}";
  }
  for (int64_t i = 0; good && i < int64_t(gathered.size()); ++i) {
    const Event &event = gathered[i];
    if (event.call < 0)
      continue;
    Shown shown = show(programOf(int(i / most)), Call(event.call), event.index);
    char numbers[128];
    snprintf(numbers, sizeof numbers, "\"pid\": %ld, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f}", long(i / most),
             programOf(int(i / most)).num_stages && !shown.row, double(event.start - origin) / 1e3,
             double(event.end - event.start) / 1e3);
    text += ",\n{\"ph\": \"X\", \"name\": " + quoted(shown.name.c_str()) +
            ", \"cat\": " + quoted(shown.category.c_str()) + ", " + numbers;
    if (text.size() > 1 << 20)
      flush();
  }
  text += "\n]}\n";
  flush();
  if (!good || !output.commit())
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
}
