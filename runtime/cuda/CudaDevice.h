//===- CudaDevice.h - Steps on a CUDA device ------------------------------===//
// The functions of pcrt.h enqueue work on streams. The first step runs as it is enqueued, because libraries do their
// lazy work then. The second step is captured into a graph, and from then on a step is one launch of the graph. Before
// the first step, the program's step function is called once in mode Listen. In this mode it enqueues nothing; the
// device only learns which calls it makes.
//===----------------------------------------------------------------------===//
#ifndef PCRT_CUDA_CUDADEVICE_H
#define PCRT_CUDA_CUDADEVICE_H

#include "cuda/Attentions.h"
#include "cuda/CodedSums.h"
#include "cuda/DeviceComm.h"
#include "cuda/DiskRing.h"
#include "cuda/Kernels.h"
#include "cuda/Memory.h"
#include "cuda/Products.h"
#include "cuda/RowCounter.h"
#include "cuda/StageFlows.h"
#include "device/Context.h"
#include "device/Device.h"

#include <map>

namespace pcrt::cuda {

/// The CUDA device of one rank. The rank's thread calls it. It owns everything on the device: arena, streams, events,
/// graph, libraries' handles and the DeviceComm. Errors of enqueued work are found at finish(). Errors are written to
/// the context.
class CudaDevice final : public Device {
public:
  CudaDevice(const Program &program, int ordinal);
  ~CudaDevice() override;
  bool abandon() override { return true; }

  void prepare(pcrt_context &context) override;
  void write(int64_t offset, const void *from, int64_t bytes) override;
  void read(void *to, int64_t offset, int64_t bytes) override;
  void copyAside(const std::vector<HostCopy> &copies) override;
  void waitForCopies() override;
  char *hostMemory(int64_t bytes) override;
  char *afterArena() override { return keptMemory; }
  char *input(int64_t step, int index) override;
  pcrt_status begin(pcrt_context &context, int64_t step) override;
  pcrt_status finish(pcrt_context &context) override;
  pcrt_status evaluate(pcrt_context &context, int64_t step) override;
  pcrt_status endRound(pcrt_context &context) override;

  pcrt_status launch(pcrt_context &context, int index, void *const *args) override;
  pcrt_status gemm(pcrt_context &context, int index, const void *a, const void *b, void *c, const void *bias,
                   void *aux) override;
  pcrt_status attention(pcrt_context &context, int index, void *const *args) override;
  pcrt_status move(pcrt_context &context, int index, const void *in, void *out) override;
  pcrt_status start(pcrt_context &context, int first, int count, const void *const *ins, void *const *outs,
                    int ticket) override;
  pcrt_status wait(pcrt_context &context, int ticket) override;
  pcrt_status send(pcrt_context &context, int flow, const void *data) override;
  pcrt_status receive(pcrt_context &context, int flow, void *data) override;
  pcrt_status task(pcrt_context &context, int kind, int chunk, int microbatch) override;
  pcrt_status observe(pcrt_context &context, int index, int64_t microbatch, void *data) override;
  pcrt_status blockOffset(pcrt_context &context, int group, int64_t block, int32_t *to) override;
  Json figures() override;

private:
  /// What a call of pcrt.h does: it notes the call, enqueues its work, or enqueues its work into the graph that is
  /// being captured.
  enum class Mode { Listen, Run, Capture };
  /// A scalar that a step passes to the observer, and the address of its copy on the host.
  struct Shown {
    int index;
    int64_t microbatch;
    float *value;
  };
  /// A function of the program that becomes a graph: the step, or the evaluation, which makes some of its calls.
  struct Part {
    decltype(pcrt_program::step) function = nullptr;
    GraphExec graph = nullptr;
    int64_t runs = 0;
    std::vector<std::string> taskNames = {};
    std::vector<PlacedReceive> receives = {}; ///< When its receives begin.
    std::vector<Shown> shown = {};            ///< The scalars of one run; both parts may use the same memory.
  };
  /// A call of an attention, found in mode Listen.
  struct AttentionCall {
    int index;
    std::vector<void *> args;
  };
  /// A call between two events, for the trace.
  struct Timed {
    Profile::Call call;
    int index;
    Event start, end;
  };

  /// Makes the calls of `part`, or those that end a round, in mode `wanted`.
  pcrt_status enqueuePart(pcrt_context &context, Part &part, Mode wanted);
  pcrt_status enqueueRound(pcrt_context &context, Mode wanted);
  void beginCalls(Mode wanted);
  /// Lets the compute stream wait for moves that were started and never waited for.
  pcrt_status waitForAll(pcrt_context &context, pcrt_status status);
  /// Waits until all enqueued work is done.
  pcrt_status waitForDevice(pcrt_context &context);
  pcrt_status callByCall(pcrt_context &context, Part &part);
  pcrt_status capture(pcrt_context &context, Part &part);
  /// Copies the inputs of step `number` to the device and starts `part`: call by call, or as a graph.
  pcrt_status begin(pcrt_context &context, Part &part, int64_t number);
  void findUpdates();
  void allocateAfterArena(pcrt_context &context);
  /// Makes work on `stream` that changes parameters or states wait for the copies of the state.
  pcrt_status beforeUpdate(pcrt_context &context, Stream stream);
  void clearArena();
  void prepareInputs();
  /// Turns the result of a call of the driver, for entry `name` of a table, into a status. In blocking mode, waits for
  /// the work first.
  pcrt_status done(pcrt_context &context, Result result, const char *what, const char *name);
  std::string howToFind() const;
  pcrt_status refused(pcrt_context &context, const std::string &text);
  pcrt_status localMove(pcrt_context &context, int index, const void *in, void *out);
  bool isLocal(const pcrt_context &context, int move) const;
  bool isCarry(int move) const { return program.abi.moves[move].kind == PCRT_CARRY; }
  /// Returns the number of the link of a carry. The links from and to the host and the disk are numbered after the
  /// groups.
  int linkOf(const pcrt_move_desc &move) const { return program.abi.num_groups + move.reduction; }
  static constexpr size_t numLinks = 4;
  void openHostArenas(pcrt_context &context);
  Result carry(const pcrt_move_desc &move, const void *in, void *out, Stream stream);
  Stream streamOf(int group);
  void openRows(pcrt_context &context);
  pcrt_status countRows(pcrt_context &context, int index);
  pcrt_status enqueueMoves(pcrt_context &context, int first, int count, const void *const *ins, void *const *outs,
                           Stream stream);
  template <typename F>
  pcrt_status run(pcrt_context &context, Profile::Call call, int index, const char *name, Stream stream, F &&f);
  void bookTimes(pcrt_context &context);
  /// Turns the status of a call of `flows` into one of the context.
  pcrt_status flowDone(pcrt_context &context, pcrt_status status, const char *name);

  const Program &program;
  Session session;
  DeviceArena arenaMemory;
  Staging staging;
  Kernels kernels;
  std::unique_ptr<Products> products;
  std::unique_ptr<Attentions> attentions;
  std::unique_ptr<DeviceComm> comm;
  std::unique_ptr<StageFlows> flows; ///< The flows of a pipeline.
  std::optional<CodedSums> codedSums;
  std::optional<RowCounter> rowCounter;    ///< Set if there are moves of rows.
  std::map<int, std::vector<float>> masks; ///< Masks on the host for each move of rows, if the transport reads them.
  std::map<int, pcrt_move_desc> moved;     ///< The moves of rows with the addresses of these masks.
  std::optional<DiskRing> ring;            ///< Set if values are on disk.
  char *arena = nullptr, *hostArena = nullptr, *keptMemory = nullptr;

  Stream aside = nullptr; ///< The stream of copies of the state; null: no copy was made yet.
  Event copied = nullptr;
  bool copying = false;      ///< True from copyAside until the step is done.
  std::vector<bool> updates; ///< By kernel: whether it changes parameters or states.

  Mode mode = Mode::Listen;
  bool blocking = false, graphs = true; ///< PCRT_CUDA_BLOCKING, PCRT_CUDA_GRAPH.
  Part step, evaluation;
  Part *current = &step; ///< The part that is enqueued, or runs.

  std::vector<ProductCall> productCalls; ///< Found in mode Listen.
  std::vector<AttentionCall> attentionCalls;
  std::vector<bool> groupMoves; ///< Whether the step moves data within a group, or over a link.
  int64_t scalarsShown = 0, callsMade = 0;
  int tasksBegun = 0; ///< The number of tasks begun in this run of `current`.

  char *inputMemory = nullptr; ///< Two slots of inputBytes.
  std::vector<int64_t> inputOffsets, inputSizes;
  int64_t inputBytes = 0;

  float *scalars = nullptr;

  std::vector<Stream> groupStreams; ///< For each group or link; null: not needed yet.
  std::vector<Event> ready;         ///< By group or link: the work on the compute stream before a move was started.
  std::vector<Event> arrived;       ///< One for each ticket, then one for blocking moves.
  std::vector<bool> outstanding;    ///< By ticket.
  std::vector<int> tickets;         ///< The group or link of each ticket.
  std::vector<int> underWay;        ///< For each group, the number of moves that are started and not waited for.
  std::vector<bool> besideProducts; ///< For each group, whether products run while its moves are in flight.

  std::vector<Event> timers;
  Event stepEnd = nullptr; ///< The end of the step, to which timers are compared.
  size_t timersUsed = 0;
  std::vector<Timed> timed;
  Timed openTask{}; ///< The current task of a traced step; if its start is null, there is none.
};

} // namespace pcrt::cuda

namespace pcrt {

/// Opens this rank's CUDA device. All ranks call it. Throws PCRT_RESOURCE if a library or the device is missing.
std::unique_ptr<Device> openCudaDevice(const Program &program);

} // namespace pcrt

#endif // PCRT_CUDA_CUDADEVICE_H
