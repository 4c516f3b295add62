//===- Options.h - What the stand-in was asked for, what it found ---------===//
// Options come from environment variables (README.md); reports are faults of the program under test. A report ends the
// run as a failed kernel would: all later calls return the sticky error.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_OPTIONS_H
#define PC_STANDIN_OPTIONS_H

#include "standin/abi/Driver.h"

#include <cstdint>
#include <mutex>
#include <string>

namespace pc::standin {

/// Multiprocessors of a device.
constexpr int multiprocessors = 132;

/// One thing that is left out or moved, to see whether the checkers notice (PC_STANDIN_FAULT=kind:index[@rank]).
struct Fault {
  std::string kind; ///< wait, record, edge, swap, split, algorithm or site (a barrier inside kernels); empty: none.
  int64_t index = 0;
};

struct Options {
  uint64_t seed = 0;      ///< 0: work runs in the order of submission.
  bool checkOrder = true; ///< Happens-before between streams.
  bool checkKernels = true;
  bool keepGoing = false; ///< Reports are no errors.
  bool trace = false;     ///< Tells each item on stderr as it runs.
  int devices = 8;
  int64_t memoryBytes = int64_t(64) << 30;
  int inFlight = 1;          ///< Collectives that a device runs at the same time, those of small communicators aside.
  double timeoutSeconds = 0; ///< Without progress anywhere, in a wait; 0: none.
  bool fewEpilogues = false; ///< cuBLASLt has no epilogue but the bias.
  bool algorithmsDiffer = false; ///< cuBLASLt's algorithms give other bits and take other times, on each rank others.
  int cudnn = 91900;             ///< The version that cuDNN says it has, with the faults of that one.
  uint64_t sumSeed = 0;          ///< The order of NCCL's additions; 0: that of the ranks.
  int rank = 0;                  ///< That a launcher gave this process.
  int queues = 8;                ///< Hardware queues of a device for the streams of a process.
  int graphQueues = 8;           ///< Those that nodes of a graph get instead; 0: they keep their streams'.
  Fault fault;
};

/// Read once from the environment.
Options &options();

/// Reads those that the driver takes from the environment when it starts.
void readQueues();

/// Every call of the driver holds this lock; items run under it. Recursive, so that closures may report.
std::recursive_mutex &driverMutex();
using Lock = std::unique_lock<std::recursive_mutex>;

/// Records a fault of the program under test.
void report(const std::string &text);

/// Notes why a call returns `code`, for cuGetErrorString, and returns it.
CUresult refuse(CUresult code, const std::string &why);

/// The error that every call returns after a report; CUDA_SUCCESS before.
CUresult stickyError();

/// Text of the report behind the sticky error, or of the last refusal with `code` on this thread; empty if none.
std::string explanation(CUresult code);

/// Forgets reports and the sticky error.
void forgetReports();

/// Counts an opportunity for a fault of `kind`; true if this is the one to apply.
bool faultHere(const char *kind);

/// Tells on stderr what a fault did.
void tellFault(const std::string &text);

} // namespace pc::standin

#endif // PC_STANDIN_OPTIONS_H
