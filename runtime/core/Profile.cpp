//===- Profile.cpp - where the time of a step goes ------------------------===//
#include "core/Profile.h"
#include "core/Collective.h"
#include "core/Failure.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

using namespace pcrt;

int64_t pcrt::nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t(1000000000) + now.tv_nsec;
}

Profile::Profile(const pcrt_program &program) : program(program) {
  for (int i = 0; i < program.num_kernels; ++i)
    kindOfKernel.push_back(kindNamed(program.kernels[i].kind));
  gemmKind = kindNamed("gemm");
  moveKind = kindNamed("move");
  attentionKind = kindNamed("attention");
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
  Kind &kind = all[call == Call::Kernel      ? kindOfKernel[index]
                   : call == Call::Gemm      ? gemmKind
                   : call == Call::Attention ? attentionKind
                                             : moveKind];
  ++kind.calls;
  kind.nanoseconds += end - start;
  if (numEvents < capacity)
    events[numEvents++] = {int32_t(call), index, start, end};
}

void Profile::startTrace(int64_t wanted) {
  events.reset(new Event[wanted]); // not initialized: only what is used takes memory
  capacity = wanted;
  numEvents = 0;
}

/// Names come from the program's source: quotes and backslashes need care, nothing else.
static std::string quoted(const char *name) {
  std::string text = "\"";
  for (; name && *name; ++name) {
    if (*name == '"' || *name == '\\')
      text += '\\';
    text += (unsigned char)*name < 32 ? ' ' : *name;
  }
  return text + "\"";
}

void Profile::writeTrace(const std::string &path, Comm &comm) const {
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
  FILE *file = fopen(path.c_str(), "we");
  if (!file)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
  int64_t origin = INT64_MAX;
  for (const Event &event : gathered)
    if (event.call >= 0)
      origin = std::min(origin, event.start);
  fprintf(file, "{\"traceEvents\": [\n");
  for (int rank = 0; rank < comm.size(); ++rank)
    fprintf(file, "%s{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, \"args\": {\"name\": \"rank %d\"}}",
            rank ? ",\n" : "", rank, rank);
  for (int64_t i = 0; i < int64_t(gathered.size()); ++i) {
    const Event &event = gathered[i];
    if (event.call < 0)
      continue;
    auto call = Call(event.call);
    const char *name = call == Call::Kernel      ? program.kernels[event.index].name
                       : call == Call::Gemm      ? program.gemms[event.index].name
                       : call == Call::Attention ? program.attentions[event.index].name
                                                 : program.moves[event.index].name;
    const char *kind = call == Call::Kernel      ? program.kernels[event.index].kind
                       : call == Call::Gemm      ? "gemm"
                       : call == Call::Attention ? "attention"
                                                 : "move";
    std::string prefix = call == Call::Start ? "start " : call == Call::Wait ? "wait for " : "";
    fprintf(file,
            ",\n{\"ph\": \"X\", \"name\": %s, \"cat\": %s, \"pid\": %ld, \"tid\": 0, \"ts\": %.3f, \"dur\": %.3f}",
            quoted((prefix + (name ? name : "")).c_str()).c_str(), quoted(kind).c_str(), long(i / most),
            double(event.start - origin) / 1e3, double(event.end - event.start) / 1e3);
  }
  fprintf(file, "\n]}\n");
  bool good = !ferror(file);
  if (fclose(file) != 0 || !good)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
}
