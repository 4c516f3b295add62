//===- Target.h - What a rank measures on ---------------------------------===//
// The list of measurements is one for all targets (Measure.cpp, Moves.cpp). A target says how large they are, makes the
// calls that the steps of programs make on it, by the runtime's own entry points, and times them.
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

/// As a layer has them: with its weights as they lie, with their transpose, and the gradient of them, a^T b in f32.
enum class ProductKind { Plain, TransposedB, TransposedA };

/// A product [rows, summed] x [summed, columns].
struct Shape {
  int64_t rows, summed, columns;
  ProductKind kind = ProductKind::Plain;
  bool accumulates = false; ///< Adds to the result.
  double flops() const { return 2. * double(rows) * double(summed) * double(columns); }
};

/// How large what is measured is on a target.
struct Sizes {
  /// Products of transformers' layers. On devices the first two are whole waves of the largest tiles and differ in the
  /// summed dim, so that the fixed cost of a tile can be told from its rate.
  std::vector<Shape> products, bf16Products;
  int adding = -1;   ///< Of bf16Products, gradients of weights: the one that is measured adding to them, too.
  int beside = 0;    ///< The product that a move is under way beside: in bf16Products on devices, else in products.
  int64_t copy = 0,  ///< Bytes of a copy that no cache holds.
      sum = 0,       ///< Of each tensor of a sum of two; 0: none.
      largeMove = 0, ///< Of a collective that goes by its bytes.
      host = 0;      ///< Of a copy between host and device; 0: they are one.
};

/// What a device says of itself; a CPU has no multiprocessors.
struct DeviceFacts {
  std::string name;
  int arch = 0, multiprocessors = 0;
  int64_t memoryBytes = 0;
};

/// A product of the table, and where its operands lie, in bytes from the beginning of the memory.
struct ProductCall {
  pcrt_gemm_desc desc;
  int64_t a, b, c;
  bool isBeside = false; ///< Moves are under way meanwhile.
};

/// Everything that calls name by an index. Lives as long as the target that was prepared with it.
struct Tables {
  std::vector<ProductCall> products;
  std::vector<pcrt_move_desc> moves; ///< `group` is an index of `groups`.
  std::vector<pcrt::Group> groups;   ///< With their index as id.
  std::vector<pcrt::Flow> flows;     ///< Of this rank: each that it sends is followed by the one back.
  std::vector<int> pairs;            ///< By kind of pair, in one order on all ranks: the first of its flows, -1: none.
  int64_t bytes = 0;                 ///< Of the memory for operands.
};

constexpr int64_t messageBytes = 4 * KiB;

/// One rank's. Every call is made by all ranks.
class Target {
public:
  virtual ~Target() = default;

  virtual Sizes sizes(bool isShort) const = 0;
  virtual DeviceFacts facts() const { return {}; }
  /// Threads of a rank that work.
  virtual int threads() const { return 1; }

  /// Takes memory, fills it with small numbers, and makes what the calls need. Once, before the first call.
  virtual void prepare(const Tables &tables) = 0;

  /// Calls of a step: made, or enqueued. Offsets are bytes in the memory, `bytes` of each operand.
  virtual void product(int index) = 0;
  virtual void copy(int64_t to, int64_t from, int64_t bytes) = 0;
  virtual void sum(int64_t to, int64_t a, int64_t b, int64_t bytes) = 0;
  /// The smallest piece of work there is.
  virtual void launch() = 0;
  virtual void move(int index, int64_t in, int64_t out) = 0;
  virtual void start(int index, int64_t in, int64_t out) = 0;
  virtual void wait() = 0;
  /// A message by flow `flow` of the table and its answer; the rank that `begins` sends first.
  virtual void messages(int flow, bool begins) = 0;
  /// `bytes` of locked host memory, as offloaded tensors are.
  virtual void toHost(int64_t bytes) = 0;
  virtual void fromHost(int64_t bytes) = 0;

  /// Seconds of `repeats` calls one after another, those of the slowest rank. `number` is the case's: what is always
  /// called in the same way may be kept for it.
  virtual double time(int number, int64_t repeats, const std::function<void()> &call) = 0;
};

std::unique_ptr<Target> makeCpuTarget(pcrt::Comm &comm);
/// On device `ordinal` of the machine. Throws a Failure where it or a library is missing.
std::unique_ptr<Target> makeCudaTarget(pcrt::Comm &comm, int ordinal);

/// The CUDA devices of this machine, by the first of them.
struct Devices {
  int count = 0;
  std::string arch; ///< What programs are compiled for: sm_90a.
  bool isStandIn = false;
};
/// Throws a Failure where there is no driver or no device. Leaves none of them open.
Devices devicesOfMachine();

} // namespace pc_calibrate

#endif // PC_CALIBRATE_TARGET_H
