//===- Options.cpp - Options and reports of the stand-in ------------------===//
// Parses the environment variables PC_STANDIN_*, and keeps reports, refusals by thread and the count of opportunities
// for faults.
//===----------------------------------------------------------------------===//
#include "standin/Options.h"
#include "standin/standin.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

using namespace pc::standin;

static int64_t number(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtoll(text, nullptr, 0) : otherwise;
}

/// The rank that a launcher gave this process, as text, or null.
static const char *launchedRank() {
  for (const char *variable : {"PCRT_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
    if (const char *rank = getenv(variable))
      return rank;
  return nullptr;
}

static Fault parseFault() {
  const char *text = getenv("PC_STANDIN_FAULT");
  if (!text || !*text)
    return {};
  const char *colon = strchr(text, ':');
  if (!colon) {
    fprintf(stderr, "pc_standin: PC_STANDIN_FAULT must be kind:index[@rank], not '%s'\n", text);
    return {};
  }
  const char *at = strchr(colon, '@'), *rank = launchedRank();
  if (at && rank && strcmp(rank, at + 1) != 0)
    return {};
  return {std::string(text, colon), strtoll(colon + 1, nullptr, 10)};
}

Options &pc::standin::options() {
  static Options *options = [] {
    auto *o = new Options;
    o->seed = number("PC_STANDIN_SEED", 0);
    if (const char *checks = getenv("PC_STANDIN_CHECK")) {
      std::string list = std::string(",") + checks + ",";
      o->checkOrder = list.find(",order,") != std::string::npos;
      o->checkKernels = list.find(",kernels,") != std::string::npos;
    }
    o->keepGoing = number("PC_STANDIN_KEEP_GOING", 0);
    o->trace = number("PC_STANDIN_TRACE", 0);
    o->devices = number("PC_STANDIN_DEVICES", o->devices);
    o->memoryBytes = number("PC_STANDIN_MEMORY", o->memoryBytes);
    o->inFlight = number("PC_STANDIN_IN_FLIGHT", o->inFlight);
    o->timeoutSeconds = number("PC_STANDIN_TIMEOUT", 0);
    o->fewEpilogues = number("PC_STANDIN_FEW_EPILOGUES", 0);
    o->noFloat8 = number("PC_STANDIN_NO_FLOAT8", 0);
    o->algorithmsDiffer = number("PC_STANDIN_ALGORITHMS", 0);
    o->cudnn = number("PC_STANDIN_CUDNN", o->cudnn);
    o->sumSeed = number("PC_STANDIN_SUMS", 0);
    o->rank = launchedRank() ? atoi(launchedRank()) : 0;
    o->fault = parseFault();
    return o;
  }();
  return *options;
}

void pc::standin::readQueues() {
  int64_t wanted = number("PC_STANDIN_QUEUES", number("CUDA_DEVICE_MAX_CONNECTIONS", 8));
  options().queues = static_cast<int>(std::clamp<int64_t>(wanted, 1, 32));
  options().graphQueues = static_cast<int>(std::clamp<int64_t>(number("PC_STANDIN_GRAPH_QUEUES", wanted), 0, 32));
}

std::recursive_mutex &pc::standin::driverMutex() {
  static auto *mutex = new std::recursive_mutex;
  return *mutex;
}

namespace {
/// The reports so far, and the error that every later call returns.
struct Reports {
  std::vector<std::string> texts;
  CUresult sticky = CUDA_SUCCESS;
  std::string stickyText;
};
/// The code and the reason of a refused call.
struct Refusal {
  CUresult code = CUDA_SUCCESS;
  std::string why;
};
} // namespace

static Reports &reports() {
  static auto *reports = new Reports;
  return *reports;
}

static Refusal &lastRefusal() {
  static thread_local auto *refusal = new Refusal; // small: lives as long as the thread's library
  return *refusal;
}

void pc::standin::report(const std::string &text) {
  Lock lock(driverMutex());
  fprintf(stderr, "pc_standin: error: %s\n", text.c_str());
  reports().texts.push_back(text);
  if (options().keepGoing || reports().sticky != CUDA_SUCCESS)
    return;
  reports().sticky = CUDA_ERROR_LAUNCH_FAILED;
  reports().stickyText = text;
}

CUresult pc::standin::refuse(CUresult code, const std::string &why) {
  lastRefusal() = {code, why};
  if (options().trace)
    fprintf(stderr, "pc_standin: refused: %s\n", why.c_str());
  return code;
}

CUresult pc::standin::stickyError() { return reports().sticky; }

std::string pc::standin::explanation(CUresult code) {
  if (code != CUDA_SUCCESS && code == reports().sticky)
    return reports().stickyText;
  if (code != CUDA_SUCCESS && code == lastRefusal().code)
    return lastRefusal().why;
  return "";
}

void pc::standin::forgetReports() { reports() = {}; }

bool pc::standin::faultHere(const char *kind) {
  static auto *counts = new std::map<std::string, int64_t>;
  const Fault &fault = options().fault;
  return fault.kind == kind && (*counts)[kind]++ == fault.index;
}

void pc::standin::tellFault(const std::string &text) { fprintf(stderr, "pc_standin: fault: %s\n", text.c_str()); }

PC_EXPORT int pc_standin_reports(void) {
  Lock lock(driverMutex());
  return static_cast<int>(reports().texts.size());
}

PC_EXPORT const char *pc_standin_report(int index) {
  Lock lock(driverMutex());
  auto &texts = reports().texts;
  return index >= 0 && index < static_cast<int>(texts.size()) ? texts[index].c_str() : nullptr;
}
