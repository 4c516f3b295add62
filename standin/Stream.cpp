//===- Stream.cpp - Streams and events ------------------------------------===//
// Streams, events and capture, with the rules of the CUDA driver API: calls that are not allowed during capture
// invalidate it, and every refusal says why.
//===----------------------------------------------------------------------===//
#include "standin/Capture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using namespace pc::standin;

namespace {
/// All streams and events, and the captures in progress.
struct StreamState {
  std::set<CUstream> streams;
  std::set<CUevent> events;
  std::vector<std::shared_ptr<Capture>> captures; ///< Active ones.
  uint64_t nextStream = 1, nextCapture = 1;
  std::map<int, uint64_t> streamsMade; ///< By device.
};
} // namespace

static StreamState &state() {
  static auto *state = new StreamState;
  return *state;
}

static thread_local CUstreamCaptureMode threadMode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static thread_local std::string currentLabel;

CUresult pc::standin::enter(const char *function) {
  if (insideItem()) {
    report(std::string(function) + " is called from inside a host function");
    return CUDA_ERROR_NOT_PERMITTED;
  }
  if (!isInitialized())
    return refuse(CUDA_ERROR_NOT_INITIALIZED, std::string(function) + " is called before cuInit");
  return stickyError();
}

static CUresult invalidate(Capture &capture, CUresult code, const std::string &why) {
  if (capture.invalid.empty())
    capture.invalid = why;
  return refuse(code, why);
}

CUresult pc::standin::enterUncaptured(const char *function) {
  if (CUresult result = enter(function))
    return result;
  if (currentDevice() < 0)
    return refuse(CUDA_ERROR_INVALID_CONTEXT, std::string(function) + ": the calling thread has no CUDA context");
  if (threadMode == CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_SUCCESS;
  for (auto &capture : state().captures) {
    bool own = capture->thread == std::this_thread::get_id() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    bool global = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && threadMode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (own || global)
      return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                        std::string(function) + " is called while a stream is captured");
  }
  return CUDA_SUCCESS;
}

/// Refuses streams that do not exist, and the default stream, which the project does not use.
static CUresult checkStream(CUstream stream, const char *function) {
  if (CUresult result = enter(function))
    return result;
  if (state().streams.count(stream))
    return CUDA_SUCCESS;
  return refuse(CUDA_ERROR_INVALID_HANDLE,
                std::string(function) +
                    (stream ? ": this is not a stream" : ": the default stream is not supported; create a stream"));
}

static CUresult checkEvent(CUevent event, const char *function) {
  if (state().events.count(event))
    return CUDA_SUCCESS;
  return refuse(CUDA_ERROR_INVALID_HANDLE, std::string(function) + ": this is not an event");
}

const std::string &pc::standin::currentSource() { return currentLabel; }

uint64_t pc::standin::takeQueue(int device) {
  return static_cast<uint64_t>(device + 1) << 8 | state().streamsMade[device]++ % options().queues;
}

/// Queues of a device: 0 to 31 are those of its streams, 0x40 to 0x43 of its copies, and from 0x80 on of its graphs.
static constexpr uint64_t copyQueues = 0x40, graphQueues = 0x80, queueMask = 0xff;

bool pc::standin::isStreamQueue(uint64_t queue) { return queue && (queue & queueMask) < copyQueues; }

uint64_t pc::standin::takeGraphQueue(uint64_t queue) {
  return (queue & ~queueMask) | (graphQueues + drawNumber() % options().graphQueues);
}

/// The queue of work on a stream. With odd seeds, copies of different streams do not wait for each other.
static uint64_t queueOf(CUstream stream, Engine engine) {
  if (engine == Engine::Compute || engine == Engine::Host || options().seed % 2)
    return stream->queue;
  return static_cast<uint64_t>(stream->device + 1) << 8 | (copyQueues + static_cast<uint64_t>(engine));
}

int pc::standin::deviceOf(CUstream stream) { return state().streams.count(stream) ? stream->device : -1; }

CUresult pc::standin::enqueue(CUstream stream, Work work, const char *from) {
  if (CUresult result = checkStream(stream, from))
    return result;
  if (!currentLabel.empty())
    work.name += " (" + currentLabel + ")";
  auto item = std::make_shared<Item>();
  item->work = std::make_shared<Work>(std::move(work));
  item->lane = stream->id;
  item->priority = stream->priority;
  if (item->work->run || item->work->start)
    item->queue = queueOf(stream, item->work->engine);
  if (Capture *capture = stream->capture.get()) {
    if (!capture->invalid.empty())
      return refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture is invalid: " + capture->invalid);
    item->after = stream->captureHeads;
    item->number = capture->nodes.size();
    capture->nodes.push_back(item);
    stream->captureHeads = {item};
    return CUDA_SUCCESS;
  }
  item->after = stream->heads;
  submit(item);
  stream->heads = {item};
  return CUDA_SUCCESS;
}

PC_EXPORT void pc_standin_label(const char *label) { currentLabel = label ? label : ""; }

PC_EXPORT void pc_standin_enqueue(void *stream, const char *name, void (*fn)(void *), void *closure,
                                  void (*destroy)(void *), const pc_standin_access *accesses, int n) {
  Lock lock(driverMutex());
  std::shared_ptr<void> owner(closure, [destroy](void *p) {
    if (destroy)
      destroy(p);
  });
  Work work;
  work.name = name;
  work.accesses.assign(accesses, accesses + n);
  work.run = [fn, owner](std::vector<Access> &) {
    fn(owner.get());
    return std::string();
  };
  if (enqueue(static_cast<CUstream>(stream), std::move(work), "pc_standin_enqueue") != CUDA_SUCCESS)
    report(std::string("cannot enqueue ") + name + ": " + explanation(CUDA_ERROR_INVALID_HANDLE));
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

#define ENTER(check)                                                                                                   \
  Lock lock(driverMutex());                                                                                            \
  if (CUresult entered = check)                                                                                        \
  return entered

PC_EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  ENTER(enterUncaptured(__func__));
  if (flags != CU_STREAM_NON_BLOCKING)
    return refuse(CUDA_ERROR_INVALID_VALUE, "cuStreamCreate: only CU_STREAM_NON_BLOCKING streams are supported");
  *stream =
      new CUstream_st{state().nextStream++, takeQueue(currentDevice()), currentDevice(), priority, {}, nullptr, {}};
  state().streams.insert(*stream);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

PC_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  ENTER(checkStream(stream, __func__));
  if (stream->capture)
    invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a stream that is being captured is destroyed");
  state().streams.erase(stream); // its items still run when a thread waits for a later item
  delete stream;
  return CUDA_SUCCESS;
}

/// Refuses to wait for or to query a stream that is captured.
static CUresult checkUncaptured(CUstream stream, const char *function) {
  if (CUresult result = enterUncaptured(function))
    return result;
  if (CUresult result = checkStream(stream, function))
    return result;
  if (stream->capture)
    return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                      std::string(function) + ": the stream is captured");
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  ENTER(checkUncaptured(stream, __func__));
  return waitFor(lock, stream->heads);
}

PC_EXPORT CUresult cuStreamQuery(CUstream stream) {
  ENTER(checkUncaptured(stream, __func__));
  letTimePass();
  if (CUresult result = stickyError())
    return result;
  return areDone(stream->heads) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

PC_EXPORT CUresult cuCtxSynchronize(void) {
  ENTER(enterUncaptured(__func__));
  // A capture of any thread in any mode counts, because a context holds its streams.
  for (auto &capture : state().captures)
    if (capture->origin->device == currentDevice())
      return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                        "cuCtxSynchronize: a stream of the context is captured");
  return waitForAll(lock);
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

PC_EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
  ENTER(enter(__func__));
  *event = new CUevent_st{!(flags & CU_EVENT_DISABLE_TIMING), false, {}, nullptr, 0};
  state().events.insert(*event);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  ENTER(checkEvent(event, __func__));
  state().events.erase(event);
  delete event;
  return CUDA_SUCCESS;
}

static std::string describe(const std::vector<ItemRef> &items) {
  std::string text;
  for (const ItemRef &item : items)
    text += (text.empty() ? "'" : ", '") + item->work->name + "'";
  return text.empty() ? "nothing" : text;
}

PC_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  ENTER(checkStream(stream, __func__));
  if (CUresult result = checkEvent(event, __func__))
    return result;
  const auto &heads = stream->capture ? stream->captureHeads : stream->heads;
  if (faultHere("record")) {
    tellFault("an event is not recorded after " + describe(heads));
    return CUDA_SUCCESS;
  }
  event->recorded = true;
  event->capture = stream->capture;
  event->heads = heads;
  event->when = seconds();
  return CUDA_SUCCESS;
}

/// Returns true if all of `items` are among `heads` or their predecessors in a graph.
static bool areAncestors(const std::vector<ItemRef> &items, const std::vector<ItemRef> &heads) {
  std::set<Item *> seen;
  std::vector<Item *> todo;
  auto visit = [&](const ItemRef &item) {
    if (seen.insert(item.get()).second)
      todo.push_back(item.get());
  };
  for (const ItemRef &head : heads)
    visit(head);
  while (!todo.empty()) {
    Item *item = todo.back();
    todo.pop_back();
    for (const ItemRef &before : item->after)
      visit(before);
  }
  return std::all_of(items.begin(), items.end(), [&](const ItemRef &item) { return seen.count(item.get()); });
}

static void addHeads(std::vector<ItemRef> &heads, const std::vector<ItemRef> &more) {
  for (const ItemRef &item : more)
    if (std::find(heads.begin(), heads.end(), item) == heads.end())
      heads.push_back(item);
}

PC_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  ENTER(checkStream(stream, __func__));
  if (CUresult result = checkEvent(event, __func__))
    return result;
  if (!event->recorded)
    return CUDA_SUCCESS;
  if (faultHere("wait")) {
    const auto &heads = stream->capture ? stream->captureHeads : stream->heads;
    bool redundant = stream->capture && stream->capture == event->capture && areAncestors(event->heads, heads);
    tellFault("what follows " + describe(heads) + " does not wait for " + describe(event->heads) +
              (redundant ? " (redundant, because the order is implied)" : ""));
    return CUDA_SUCCESS;
  }
  if (!event->capture) {
    if (stream->capture)
      return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                        "a captured stream waits for " + describe(event->heads) + ", which is not captured");
    addHeads(stream->heads, event->heads);
    return CUDA_SUCCESS;
  }
  if (event->capture->ended)
    return refuse(CUDA_ERROR_CAPTURED_EVENT, "cuStreamWaitEvent: the event was recorded in a capture that has ended");
  if (!stream->capture) { // the stream joins the capture
    stream->capture = event->capture;
    stream->captureHeads.clear();
    event->capture->streams.push_back(stream);
  }
  if (stream->capture != event->capture) {
    invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE, "the wait would merge two captures");
    return invalidate(*event->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE, "the wait would merge two captures");
  }
  addHeads(stream->captureHeads, event->heads);
  return CUDA_SUCCESS;
}

static CUresult checkHostEvent(CUevent event, const char *function) {
  if (CUresult result = enterUncaptured(function))
    return result;
  if (CUresult result = checkEvent(event, function))
    return result;
  if (event->capture)
    return refuse(CUDA_ERROR_CAPTURED_EVENT, std::string(function) + ": the event was recorded in a capture");
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuEventSynchronize(CUevent event) {
  ENTER(checkHostEvent(event, __func__));
  return waitFor(lock, event->heads);
}

PC_EXPORT CUresult cuEventQuery(CUevent event) {
  ENTER(checkHostEvent(event, __func__));
  letTimePass();
  if (CUresult result = stickyError())
    return result;
  return areDone(event->heads) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

PC_EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
  ENTER(checkHostEvent(start, __func__));
  if (CUresult result = checkHostEvent(end, __func__))
    return result;
  if (!start->recorded || !end->recorded || !start->timing || !end->timing)
    return refuse(CUDA_ERROR_INVALID_HANDLE, "cuEventElapsedTime: an event has no time");
  if (!areDone(start->heads) || !areDone(end->heads))
    return CUDA_ERROR_NOT_READY;
  auto reached = [](CUevent event) {
    double when = event->when;
    for (const ItemRef &item : event->heads)
      when = std::max(when, item->finished);
    return when;
  };
  *milliseconds = static_cast<float>(std::max(0.0, reached(end) - reached(start)) * 1e3);
  return CUDA_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Capture
//===----------------------------------------------------------------------===//

PC_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  ENTER(checkStream(stream, __func__));
  if (stream->capture)
    return refuse(CUDA_ERROR_ILLEGAL_STATE, "cuStreamBeginCapture: the stream is captured already");
  auto capture = std::make_shared<Capture>();
  capture->id = state().nextCapture++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->streams = {stream};
  stream->capture = capture;
  stream->captureHeads.clear();
  state().captures.push_back(capture);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  ENTER(checkStream(stream, __func__));
  *graph = nullptr;
  std::shared_ptr<Capture> capture = stream->capture;
  if (!capture)
    return refuse(CUDA_ERROR_ILLEGAL_STATE, "cuStreamEndCapture: the stream is not captured");
  if (capture->origin != stream)
    return refuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "cuStreamEndCapture: the capture began on another stream");
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
    return refuse(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "cuStreamEndCapture: the capture began on another thread");
  std::vector<ItemRef> loose; // heads of other streams that the origin did not wait for
  for (CUstream member : capture->streams) {
    if (!state().streams.count(member) || member->capture != capture)
      continue;
    if (member != stream)
      for (const ItemRef &head : member->captureHeads)
        if (!areAncestors({head}, stream->captureHeads))
          addHeads(loose, {head});
    if (member != stream)
      member->capture = nullptr, member->captureHeads.clear();
  }
  stream->capture = nullptr;
  stream->captureHeads.clear();
  capture->ended = true;
  UserObjects objects = std::move(capture->objects);
  std::erase(state().captures, capture);
  if (!capture->invalid.empty())
    return refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture is invalid: " + capture->invalid);
  if (!loose.empty())
    return refuse(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                  "cuStreamEndCapture: the stream that began the capture does not wait for " + describe(loose));
  *graph = new CUgraph_st{std::move(capture->nodes), std::move(objects)};
  return CUDA_SUCCESS;
}

static CUstreamCaptureStatus statusOf(CUstream stream) {
  if (!stream->capture)
    return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream->capture->invalid.empty() ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

PC_EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  ENTER(checkStream(stream, __func__));
  *status = statusOf(stream);
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                             CUgraph *graph, const CUgraphNode **nodes, const CUgraphEdgeData **edges,
                                             size_t *count) {
  ENTER(checkStream(stream, __func__));
  if (graph || nodes || edges || count)
    return refuse(CUDA_ERROR_NOT_SUPPORTED, "cuStreamGetCaptureInfo: only the status and the id are supported");
  *status = statusOf(stream);
  if (id && stream->capture)
    *id = stream->capture->id;
  return CUDA_SUCCESS;
}

PC_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  std::swap(*mode, threadMode);
  return CUDA_SUCCESS;
}

void pc::standin::resetStreams() {
  for (CUstream stream : state().streams) {
    stream->heads.clear();
    stream->capture = nullptr;
    stream->captureHeads.clear();
  }
  for (CUevent event : state().events) {
    event->heads.clear();
    event->capture = nullptr;
    event->recorded = false;
  }
  state().captures.clear();
}
