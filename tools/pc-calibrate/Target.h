//===- Target.h - The interface of measured targets -----------------------===//
// The list of measurements is the same for all targets (Measure.cpp, Moves.cpp). A target states how large they are,
// makes the same calls as the steps of programs, through the runtime's entry points, and measures their time.
//===----------------------------------------------------------------------===//
#ifndef PC_CALIBRATE_TARGET_H
#define PC_CALIBRATE_TARGET_H

#include "comm/Comm.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pc_calibrate {

constexpr int64_t KiB = 1024, MiB = 1024 * KiB;

/// The products of a layer: with its weights, with their transpose, and the gradient of the weights, a^T b in f32.
enum class ProductKind { Plain, TransposedB, TransposedA };

/// A product [rows, summed] x [summed, columns].
struct Shape {
  int64_t rows, summed, columns;
  ProductKind kind = ProductKind::Plain;
  bool accumulates = false; ///< Adds to the result.
  double flops() const { return 2. * double(rows) * double(summed) * double(columns); }
};

/// The sizes of the measurements on a target.
struct Sizes {
  /// Products of transformers' layers. On devices the first two are whole waves of the largest tiles and differ in the
  /// summed dim, so that the fixed cost of a tile can be told from its rate.
  std::vector<Shape> products, bf16Products;
  int adding = -1;   ///< The gradient of weights in bf16Products that is also measured adding to its result.
  int beside = 0;    ///< The product during a move: in bf16Products on devices, otherwise in products.
  int64_t copy = 0,  ///< Bytes of a copy that no cache holds.
      sum = 0,       ///< Bytes of each tensor of a sum of two; 0: it is not measured.
      largeMove = 0, ///< Bytes of a large collective.
      carry = 0;     ///< Bytes of a copy to or from another space; 0: there is none.
  std::string away;  ///< The name of that space.
};

/// The properties of a device; a CPU has no multiprocessors.
struct DeviceFacts {
  std::string name;
  int arch = 0, multiprocessors = 0;
  int64_t memoryBytes = 0, hostBytes = 0; ///< of the device, and of its host for all devices
};

/// A product of the table, and the offsets of its operands, in bytes from the beginning of the memory.
struct ProductCall {
  pcrt_gemm_desc desc;
  int64_t a, b, c;
  bool isBeside = false; ///< Moves are in flight during the product.
};

/// Everything that calls refer to by an index. It must outlive the target that was prepared with it.
struct Tables {
  std::vector<ProductCall> products;
  std::vector<pcrt_move_desc> moves; ///< `group` is an index of `groups`.
  std::vector<pcrt::Group> groups;   ///< Their ids are their indices.
  std::vector<pcrt::Flow> flows;     ///< The flows of this rank; each flow that it sends is followed by the flow back.
  std::vector<int> pairs;            ///< The first flow of each kind of pair, in the same order on all ranks; -1: none.
  int64_t bytes = 0;                 ///< The size of the memory for operands.
};

constexpr int64_t messageBytes = 4 * KiB;

/// The target of one rank. All ranks make every call together. Errors are thrown as a Failure.
class Target {
public:
  virtual ~Target() = default;

  virtual Sizes sizes(bool isShort) const = 0;
  virtual DeviceFacts facts() const { return {}; }
  /// The number of working threads of a rank.
  virtual int threads() const { return 1; }

  /// Allocates memory, fills it with small numbers, and prepares what the calls need. Called once, before the first
  /// call.
  virtual void prepare(const Tables &tables) = 0;

  /// The calls of a step, which are carried out or enqueued. Offsets are in bytes; `bytes` is the size of each operand.
  virtual void product(int index) = 0;
  virtual void copy(int64_t to, int64_t from, int64_t bytes) = 0;
  virtual void sum(int64_t to, int64_t a, int64_t b, int64_t bytes) = 0;
  /// The smallest possible piece of work.
  virtual void launch() = 0;
  virtual void move(int index, int64_t in, int64_t out) = 0;
  virtual void start(int index, int64_t in, int64_t out) = 0;
  virtual void wait() = 0;
  /// A message by flow `flow` of the table and its answer; the rank that `begins` sends first.
  virtual void messages(int flow, bool begins) = 0;
  /// Copies of `bytes` to and from the space that holds offloaded tensors: the scratch file of a CPU rank, or locked
  /// memory of a device's host.
  virtual void carryOut(int64_t bytes) = 0;
  virtual void carryIn(int64_t bytes) = 0;

  /// The seconds of `repeats` calls one after another on the slowest rank. `number` identifies the case, so that a
  /// target may keep a graph of its calls.
  virtual double time(int number, int64_t repeats, const std::function<void()> &call) = 0;
};

/// The target on the cores of this rank. If `scratch` is not empty, it is a directory for a scratch file.
std::unique_ptr<Target> makeCpuTarget(pcrt::Comm &comm, const std::string &scratch);
/// The target on device `ordinal` of the machine. Throws a Failure if it or a library is missing.
std::unique_ptr<Target> makeCudaTarget(pcrt::Comm &comm, int ordinal);

/// The CUDA devices of this machine, described by the first one.
struct Devices {
  int count = 0;
  std::string arch; ///< The architecture for which programs are compiled: sm_90a.
  bool isStandIn = false;
};
/// Finds them and leaves none open. Throws a Failure if there is no driver or no device.
Devices devicesOfMachine();

} // namespace pc_calibrate

#endif // PC_CALIBRATE_TARGET_H
