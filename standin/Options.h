//===- Options.h - Options and reports of the stand-in --------------------===//
// Options come from environment variables (README.md); reports are faults of the program under test. A report ends the
// run like a failed kernel: all later calls return the sticky error.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_OPTIONS_H
#define PC_STANDIN_OPTIONS_H

#include "standin/abi/Driver.h"

#include <cstdint>
#include <mutex>
#include <string>

namespace pc::standin {

/// The number of multiprocessors of a device.
constexpr int multiprocessors = 132;

/// One operation that is left out or moved, to test whether the checkers notice (PC_STANDIN_FAULT=kind:index[@rank]).
struct Fault {
  std::string kind; ///< wait, record, edge, swap, split, algorithm or site (a barrier inside kernels); empty: none.
  int64_t index = 0;
};

/// The settings of the stand-in, from PC_STANDIN_* in the environment.
struct Options {
  uint64_t seed = 0;      ///< 0: work runs in the order of submission.
  bool checkOrder = true; ///< Happens-before between streams.
  bool checkKernels = true;
  bool keepGoing = false; ///< Reports do not become errors.
  bool trace = false;     ///< Print each item to stderr when it runs.
  int devices = 8;
  int64_t memoryBytes = int64_t(64) << 30;
  int inFlight = 1;              ///< Calls of NCCL at a time on a device.
  double timeoutSeconds = 0;     ///< The longest wait without any progress; 0: no limit.
  bool fewEpilogues = false;     ///< cuBLASLt has no epilogue except the bias.
  bool noFloat8 = false;         ///< cuBLASLt has no products of floats of 8 bits.
  bool algorithmsDiffer = false; ///< cuBLASLt's algorithms differ in bits and times, differently on each rank.
  int cudnn = 91900;             ///< The version that cuDNN reports; it also has the faults of that version.
  uint64_t sumSeed = 0;          ///< The order of NCCL's additions; 0: that of the ranks.
  int rank = 0;                  ///< The rank that a launcher gave this process.
  int queues = 8;                ///< Hardware queues of a device for the streams of a process.
  int graphQueues = 8;           ///< Hardware queues for the nodes of graphs; 0: nodes keep their streams' queues.
  Fault fault;
};

/// The options, which are read once from the environment.
Options &options();
/// Reads the options that the driver reads when it starts.
void readQueues();

/// Every call of the driver holds this lock, and items run under it. It is recursive, so that closures may report.
std::recursive_mutex &driverMutex();
using Lock = std::unique_lock<std::recursive_mutex>;

/// Records a fault of the program under test.
void report(const std::string &text);

/// Notes why a call returns `code`, for cuGetErrorString, and returns it.
CUresult refuse(CUresult code, const std::string &why);

/// The error that every call returns after a report; CUDA_SUCCESS if there is no report.
CUresult stickyError();

/// The text of the report that caused the sticky error, or of the last refusal with `code` on this thread; empty: none.
std::string explanation(CUresult code);

/// Forgets reports and the sticky error.
void forgetReports();

/// Counts an opportunity for a fault of `kind`; true if this is the one to apply.
bool faultHere(const char *kind);

/// Prints to stderr the effect of a fault.
void tellFault(const std::string &text);

} // namespace pc::standin

#endif // PC_STANDIN_OPTIONS_H
