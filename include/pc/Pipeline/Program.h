//===- Program.h - Orders with their sends, receives and collectives -----------------------===//
// A program is a list of instructions for each stage, with their streams and the instructions that they wait for.
// Schedules are executed and checked in this form, which does not depend on IR.
//===-----------------------------------------------------------------------------===//
#ifndef PC_PIPELINE_PROGRAM_H
#define PC_PIPELINE_PROGRAM_H

#include "pc/Pipeline/Schedule.h"

#include <compare>
#include <map>

namespace pc::pipeline {

/// A flow of messages from one chunk. It carries the results of the chunk's F tasks to the next chunk, or those of its
/// B tasks to the previous chunk, in microbatch order at both ends. If a task passes several values, each has a
/// separate flow.
struct Flow {
  int source = 0, destination = 0;
  TaskKind kind = TaskKind::Forward;
  int chunk = 0, number = 0;
  friend auto operator<=>(const Flow &, const Flow &) = default;
};

/// One end of a message: its send or its receive. A message is named after the task that produces it.
struct Part {
  bool send = false;
  Flow flow;
  Task message;
  bool input = true; ///< false if no task reads it, because stages exchange it when all tasks are done
};

/// An instruction that a stage issues. `type` determines which fields are used. An instruction starts when the previous
/// one of its stream and all of `after` are done.
struct Instruction {
  enum Type { Compute, Transfer, Collective } type = Compute;
  std::string stream;      ///< instructions of one stream run in program order
  Task task;               ///< Compute
  std::vector<Part> parts; ///< Transfer: posted together, done when all are done
  std::string group, tag;  ///< Collective: the communicator, and which of its calls it is
  std::vector<int> after;  ///< indices of earlier instructions of the same stage that must be done

  /// A task, on the stream "compute".
  static Instruction compute(Task task, std::vector<int> after = {}) {
    return {Compute, "compute", task, {}, "", "", after};
  }
  /// A call of all members of `group`. Members must have the same `tag` in calls at the same position.
  static Instruction collective(std::string group, std::string tag, std::vector<int> after = {},
                                std::string stream = "compute") {
    return {Collective, stream, {}, {}, group, tag, after};
  }
};
std::string text(const Instruction &instruction);

/// The instructions of every stage, in order, and the stages that take part in each collective.
struct Program {
  std::vector<std::vector<Instruction>> stages;
  std::map<std::string, std::vector<int>> groups; ///< members of every communicator
};

/// Returns the task that gets the result of this F or B: the task of the same kind of the next chunk (F) or the
/// previous chunk (B). Returns std::nullopt at the ends of the model, and if the result stays on the stage.
std::optional<Task> consumer(const Problem &problem, const Task &task);

/// Makes a program for one thread per stage, with flows that buffer messages. All instructions of a stage are on one
/// stream. Each receive is right before the task that reads it, and each send right after the task that produces it.
Program placeInline(const Problem &problem, const Order &order);
/// The smallest number of messages, at least 2, that every flow must be able to hold so that `program` does not stall.
/// 0 if it always stalls.
int slotsFor(const Problem &problem, const Program &program);

/// A fault in a program.
struct Fault {
  /// What kind of fault it is, and a message.
  ///   flow: sends and receives that do not match.
  ///   collective: members whose calls differ.
  ///   unknown, stage, duplicate, missing: the wrong tasks.
  ///   order: a task or send before something that it needs.
  ///   input: a task that does not wait for its receive.
  ///   slot: a receive into memory that may still be read.
  ///   memory: over the limit.
  ///   deadlock: a cycle of waits, which the message lists.
  std::string kind, text;
};

/// The number of messages that the runtime can hold at either end of a flow.
struct VerifyOptions {
  int slots = 2;    ///< messages of one flow that the receiver can hold; 0: not checked
  int buffered = 0; ///< messages that may be sent before their receive is posted; 0: rendezvous, the strictest
};

/// Checks the programs of all stages together: tasks, dependencies, matching, slots, memory, and freedom from deadlock
/// over the sends, receives and collectives of all communicators. Does not use any result of the scheduler. Linear in
/// the number of instructions.
std::optional<Fault> verify(const Problem &problem, const Program &program, const VerifyOptions &options = {});

} // namespace pc::pipeline

#endif
