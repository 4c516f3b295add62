//===- Schedule.h - Pipeline schedules as values ------------------------------------------===//
// A problem (devices, chunks of the model, microbatches, times, memory), orders that solve it, and what an order costs.
// Free of IR. A *device* is a whole group of ranks at one place of the pipeline axis; a *chunk* a contiguous piece of
// the model.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PIPELINE_SCHEDULE_H
#define PC_PIPELINE_SCHEDULE_H

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pc::pipeline {

/// Forward; recomputation of what the forward pass did not keep; gradient of the input; gradient of the weights.
enum class Kind : uint8_t { F, R, B, W };
constexpr int numKinds = 4;

/// One kind of work of one chunk for one microbatch.
struct Task {
  Kind kind = Kind::F;
  int chunk = 0, microbatch = 0;
  friend bool operator==(const Task &, const Task &) = default;
};
/// "F3.0": forward of chunk 3, microbatch 0.
std::string text(const Task &task);

/// Per device, its tasks in the order in which it runs them. In every order that is made here each (kind, chunk) takes
/// its microbatches in ascending order, so that gradients are summed in one order under every schedule.
using Order = std::vector<std::vector<Task>>;

/// What is to be scheduled. Vectors are per chunk unless they say otherwise; an empty one is all zeros (`held`: all
/// ones).
struct Problem {
  int devices = 1, microbatches = 1;
  std::vector<int> device;                       ///< of every chunk, chunks in model order
  std::vector<double> forward, backward, weight; ///< seconds; `backward` without the gradient of the weights
  bool training = true;                          ///< false: there are tasks F only
  bool split = false;                            ///< false: one task B takes backward + weight, and there is no W
  std::vector<double> recompute;                 ///< seconds; 0: the chunk keeps what it needs
  std::vector<double> hop;                       ///< seconds from chunk c to c + 1 where their devices differ
  std::vector<double> held;                      ///< memory taken when F starts
  std::vector<double> heldByRecompute;           ///< memory added when R starts
  std::vector<double> releasedByBackward; ///< with `split`: memory that the end of B gives back; W gives back the rest
  std::vector<double> limit;              ///< per device; empty: none
  double optimizer = 0;                   ///< seconds after a device's last task

  int chunks() const { return static_cast<int>(device.size()); }
  bool has(Kind kind, int chunk) const;
  double seconds(const Task &task) const;
  /// Memory that a task takes at its start and gives back at its end.
  double takes(const Task &task) const;
  double frees(const Task &task) const;
  /// What one microbatch of all its chunks takes on a device: less cannot be scheduled.
  double floor(int device) const;
  /// Seconds of work of the busiest device.
  double ideal() const;

  struct Input {
    Task task;
    double delay; ///< seconds until its result is there
  };
  /// At most two.
  class Inputs {
  public:
    void add(const Input &input) { list[count++] = input; }
    const Input *begin() const { return list.data(); }
    const Input *end() const { return list.data() + count; }

  private:
    std::array<Input, 2> list = {};
    int count = 0;
  };
  /// What a task needs done before it.
  Inputs inputs(const Task &task) const;
  /// A number below tasks() for every task.
  int id(const Task &task) const {
    return (static_cast<int>(task.kind) * chunks() + task.chunk) * microbatches + task.microbatch;
  }
  int tasks() const { return numKinds * chunks() * microbatches; }
  /// All tasks there are.
  std::vector<Task> all() const;
};

/// Chunk c on device c mod p; and down and up again: 0 .. p-1, p-1 .. 0.
std::vector<int> roundRobin(int devices, int chunksPerDevice);
std::vector<int> vShape(int devices);
/// A problem whose chunks share a device's seconds equally. Memory in units of one chunk and microbatch.
Problem uniform(int microbatches, std::vector<int> device, double forward, double backward, double weight, bool split,
                double hop = 0);

/// When every task runs; by Problem::id.
struct Timeline {
  std::vector<double> start, end;
  std::vector<Task>
      sequence; ///< all tasks, none before what it needs (times alone don't say that of tasks that take none)
};
/// Every task starts when its device is free and its inputs have come. Nothing if the order stalls (inputs that come in
/// a circle).
std::optional<Timeline> simulate(const Problem &problem, const Order &order);

struct Measure {
  double cost = 0;  ///< the longest busy window of one device, first start to last end: the published definition
  double span = 0;  ///< first start to last end of all: what counts where all meet before the optimizer (gradient norm)
  double ideal = 0; ///< the busiest device's work
  std::vector<double> memory; ///< per device, at most

  /// Idle time over cost, and over ideal time: the two rates in use.
  double bubble() const { return (cost - ideal) / cost; }
  double idleOverIdeal() const { return (cost - ideal) / ideal; }
};
std::optional<Measure> measure(const Problem &problem, const Order &order);
/// The most memory of every device; it depends on the order alone.
std::vector<double> peaks(const Problem &problem, const Order &order);
bool fits(const Problem &problem, const Order &order);

/// The names that `namedOrder` knows, in the order of the documentation.
const std::vector<std::string_view> &orderNames();
/// naive, gpipe, 1f1b, 1f1b-eager, interleaved, zb-h1, zb-h2, zb-v. Nothing, with the reason in `error`, where the
/// problem's chunks do not suit the schedule (how many a device has, where they lie, whether the backward pass is
/// split).
std::optional<Order> namedOrder(const Problem &problem, std::string_view name, std::string &error);

/// The best order found by span or cost: all named ones that fit, their weight gradients placed anew, and list
/// schedules under the memory limit. Never worse than a named one that fits; the same for the same problem. Nothing,
/// with the reason, if one microbatch is too much.
enum class Goal { Span, Cost };
struct AutoOrder {
  std::string name;
  Order order;
};
std::optional<AutoOrder> autoOrder(const Problem &problem, Goal goal, std::string &error);

/// Microbatch groups of interleaving: as many as m div p, sizes as equal as can be, none below min(m, p). Smaller
/// groups deadlock.
std::vector<int> interleavingGroups(int devices, int microbatches);

} // namespace pc::pipeline

#endif
