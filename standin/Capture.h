//===- Capture.h - Streams, events, captured graphs -----------------------===//
// A stream is the set of items that its next item comes after; recording an event copies that set, waiting for an event
// adds to it. Under capture the same items become nodes of a graph, and only what the capture orders is ordered.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_CAPTURE_H
#define PC_STANDIN_CAPTURE_H

#include "standin/Scheduler.h"

#include <thread>

namespace pc::standin {

/// What a graph holds until it is destroyed, as do the executable graphs made of it (cuGraphRetainUserObject).
using UserObjects = std::vector<std::shared_ptr<void>>;

struct Capture {
  uint64_t id;
  CUstreamCaptureMode mode;
  std::thread::id thread;
  CUstream origin;
  std::vector<ItemRef> nodes; ///< In the order of the calls.
  UserObjects objects;
  std::vector<CUstream> streams;
  std::string invalid; ///< Why the capture failed; empty: it has not.
  bool ended = false;
};

/// Appends work to a stream, or to the graph that it captures. `from` names the calling function in refusals.
CUresult enqueue(CUstream stream, Work work, const char *from);

/// What this thread said last by pc_standin_label.
const std::string &currentSource();

/// First thing of every call: refuses calls from inside items, before cuInit, and after a report.
CUresult enter(const char *function);

/// `enter` for calls that may not happen while this thread captures; they invalidate the capture.
CUresult enterUncaptured(const char *function);

/// The current device of this thread; -1: no context.
int currentDevice();

/// The device of a stream that exists; -1: it does not.
int deviceOf(CUstream stream);

/// The hardware queue of the next stream of a device: they take turns.
uint64_t takeQueue(int device);

/// Whether `queue` belongs to streams: not to copies of all streams, and not 0, none.
bool isStreamQueue(uint64_t queue);

/// One of the queues that graphs of the same device as `queue` have, drawn.
uint64_t takeGraphQueue(uint64_t queue);

/// Whether cuInit has been called.
bool isInitialized();

/// Streams and events forget the items of before.
void resetStreams();

} // namespace pc::standin

struct CUstream_st {
  uint64_t id, queue;
  int device, priority;
  std::vector<pc::standin::ItemRef> heads; ///< The next item comes after these.
  std::shared_ptr<pc::standin::Capture> capture;
  std::vector<pc::standin::ItemRef> captureHeads;
};

struct CUevent_st {
  bool timing;
  bool recorded = false;
  std::vector<pc::standin::ItemRef> heads;
  std::shared_ptr<pc::standin::Capture> capture; ///< That the record was part of.
  double when = 0;                               ///< Of the record, in seconds.
};

struct CUgraph_st {
  std::vector<pc::standin::ItemRef> nodes;
  pc::standin::UserObjects objects;
};

struct CUgraphExec_st {
  uint64_t id;
  std::vector<pc::standin::ItemRef> nodes;
  pc::standin::ItemRef last; ///< The end of the previous launch: a graph never runs beside itself.
  pc::standin::UserObjects objects;
};

#endif // PC_STANDIN_CAPTURE_H
