//===- Capture.h - Streams, events, captured graphs -----------------------===//
// A stream is the set of items after which its next item comes. Recording an event copies that set, and waiting for an
// event adds to it. During capture, the same items become nodes of a graph, and only the order that the capture
// establishes applies.
//===----------------------------------------------------------------------===//
#ifndef PC_STANDIN_CAPTURE_H
#define PC_STANDIN_CAPTURE_H

#include "standin/Scheduler.h"

#include <thread>

namespace pc::standin {

/// The objects that a graph, and the executable graphs made from it, hold until they are destroyed
/// (cuGraphRetainUserObject).
using UserObjects = std::vector<std::shared_ptr<void>>;

/// A capture, from cuStreamBeginCapture to cuStreamEndCapture. Its streams share it.
struct Capture {
  uint64_t id;
  CUstreamCaptureMode mode;
  std::thread::id thread;
  CUstream origin;
  std::vector<ItemRef> nodes; ///< In the order of the calls.
  UserObjects objects;
  std::vector<CUstream> streams;
  std::string invalid; ///< The reason why the capture failed; empty: it has not failed.
  bool ended = false;
};

/// Appends work to a stream, or to the graph that it captures. `from` names the calling function in refusals.
CUresult enqueue(CUstream stream, Work work, const char *from);

/// The last label of this thread (pc_standin_label).
const std::string &currentSource();

/// Every function calls it first: refuses calls from inside items, before cuInit, and after a report.
CUresult enter(const char *function);

/// Like enter, for functions that must not be called while this thread captures; they invalidate the capture.
CUresult enterUncaptured(const char *function);

/// The current device of this thread; -1: no context.
int currentDevice();

/// The device of a stream that exists; -1: it does not.
int deviceOf(CUstream stream);

/// The hardware queue of the next stream of a device; queues take turns.
uint64_t takeQueue(int device);

/// Whether `queue` is a queue of streams, and not the queue of all copies or 0.
bool isStreamQueue(uint64_t queue);

/// A random queue for graphs, on the device to which `queue` belongs.
uint64_t takeGraphQueue(uint64_t queue);

/// Whether cuInit has been called.
bool isInitialized();

/// Makes streams and events forget all items.
void resetStreams();

} // namespace pc::standin

/// A stream. `captureHeads` are the heads while it is being captured.
struct CUstream_st {
  uint64_t id, queue;
  int device, priority;
  std::vector<pc::standin::ItemRef> heads; ///< The next item comes after these.
  std::shared_ptr<pc::standin::Capture> capture;
  std::vector<pc::standin::ItemRef> captureHeads;
};

/// An event: the items that its last record waits for.
struct CUevent_st {
  bool timing;
  bool recorded = false;
  std::vector<pc::standin::ItemRef> heads;
  std::shared_ptr<pc::standin::Capture> capture; ///< The capture to which the record belongs.
  double when = 0;                               ///< The time of the record, in seconds.
};

/// A captured graph.
struct CUgraph_st {
  std::vector<pc::standin::ItemRef> nodes;
  pc::standin::UserObjects objects;
};

/// A graph that can be launched.
struct CUgraphExec_st {
  uint64_t id;
  std::vector<pc::standin::ItemRef> nodes;
  pc::standin::ItemRef last; ///< The end of the previous launch, because launches of a graph never overlap.
  pc::standin::UserObjects objects;
};

#endif // PC_STANDIN_CAPTURE_H
