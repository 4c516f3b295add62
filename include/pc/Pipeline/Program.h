//===- Program.h - Orders with their sends, receives and collectives -----------------------===//
// What every stage issues, on which stream, and what it waits for: the form in which a schedule is executed and
// checked. Free of IR.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PIPELINE_PROGRAM_H
#define PC_PIPELINE_PROGRAM_H

#include "pc/Pipeline/Schedule.h"

#include <compare>
#include <map>

namespace pc::pipeline {

/// One flow of messages: the results of F (to the next chunk) or B (to the one before) of one chunk, in microbatch
/// order at both ends. If a task passes several values, each has a flow of its own.
struct Flow {
  int source = 0, destination = 0;
  TaskKind kind = TaskKind::Forward;
  int chunk = 0, number = 0;
  friend auto operator<=>(const Flow &, const Flow &) = default;
};

/// One half of a message. Messages are named by the task that makes them.
struct Part {
  bool send = false;
  Flow flow;
  Task message;
  bool input = true; ///< false: no task reads it (what stages exchange when all tasks are done)
};

/// One thing that a stage issues. `type` says which fields count. An instruction starts when the one before it in its
/// stream and all of `after` are done.
struct Instruction {
  enum Type { Compute, Transfer, Collective } type = Compute;
  std::string stream;      ///< instructions of one stream run in program order
  Task task;               ///< Compute
  std::vector<Part> parts; ///< Transfer: posted together, done when all are
  std::string group, tag;  ///< Collective: the communicator, and which of its calls
  std::vector<int> after;  ///< indices of earlier instructions of the same stage that must be done

  /// A task, on the stream "compute".
  static Instruction compute(Task task, std::vector<int> after = {}) {
    return {Compute, "compute", task, {}, "", "", after};
  }
  /// A call of all members of `group`; members that call in the same place must have the same `tag`.
  static Instruction collective(std::string group, std::string tag, std::vector<int> after = {},
                                std::string stream = "compute") {
    return {Collective, stream, {}, {}, group, tag, after};
  }
};
std::string text(const Instruction &instruction);

/// What every stage issues, in order, and who takes part in collectives.
struct Program {
  std::vector<std::vector<Instruction>> stages;
  std::map<std::string, std::vector<int>> groups; ///< members of every communicator
};

/// The result of F and B goes to the chunk of this task; nothing at the ends of the model and where it stays on the
/// stage.
std::optional<Task> consumer(const Problem &problem, const Task &task);

/// For one thread per stage and flows that hold messages: receives right before their reader, sends right after
/// their producer, all on one stream.
Program placeInline(const Problem &problem, const Order &order);
/// The fewest messages that every flow must hold so that `program` does not stall, at least 2; 0 if it always does.
int slotsFor(const Problem &problem, const Program &program);

/// What is wrong with a program.
struct Fault {
  /// flow: sends and receives that do not match. collective: members that call differently. unknown, stage,
  /// duplicate, missing: the wrong tasks. order: a task or send before what it needs. input: a task that does not wait
  /// for its receive. slot: a receive into memory that may still be read. memory: over the limit. deadlock: a circle of
  /// waits, printed.
  std::string kind, text;
};

/// What the runtime offers that runs the program: memory for messages on both sides.
struct VerifyOptions {
  int slots = 2;    ///< messages of one flow that the receiver holds; 0: not checked
  int buffered = 0; ///< messages that may be sent before their receive is posted; 0: rendezvous, the strictest
};

/// Checks programs of all stages together: tasks, dependencies, matching, slots, memory, and freedom from deadlock
/// over sends, receives and collectives of all communicators. Trusts nothing from the scheduler. Linear in the
/// instructions.
std::optional<Fault> verify(const Problem &problem, const Program &program, const VerifyOptions &options = {});

} // namespace pc::pipeline

#endif
