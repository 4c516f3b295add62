//===- PlaceInline.cpp - Places messages for one thread per stage -------------------------===//
// Receives are placed right before their reader, and sends right after their producer, in the order of the tasks.
// Whether this stalls depends on the number of messages that a flow can hold. The smallest number that works is found
// by trial.
//===-----------------------------------------------------------------------------===//
#include "Stall.h"

using namespace pc::pipeline;

/// The task of another stage that reads the result: the next chunk in the forward pass, the one before in the backward
/// pass.
std::optional<Task> pc::pipeline::consumer(const Problem &problem, const Task &task) {
  if (task.kind != TaskKind::Forward && task.kind != TaskKind::Backward)
    return std::nullopt;
  int chunk = task.chunk + (task.kind == TaskKind::Forward ? 1 : -1);
  if (chunk < 0 || chunk >= problem.chunks() || problem.stageOf[chunk] == problem.stageOf[task.chunk])
    return std::nullopt;
  return Task{task.kind, chunk, task.microbatch};
}

/// Each message is placed at its task: the receive before the reader, the send after the producer.
Program pc::pipeline::placeInline(const Problem &problem, const Order &order) {
  Program program;
  auto transfer = [&](bool send, const Task &message) {
    Flow flow{problem.stageOf[message.chunk], problem.stageOf[consumer(problem, message)->chunk], message.kind,
              message.chunk};
    return Instruction{Instruction::Transfer, "compute", {}, {{send, flow, message}}, "", "", {}};
  };
  for (const auto &tasks : order) {
    std::vector<Instruction> &stage = program.stages.emplace_back();
    for (const Task &task : tasks) {
      for (const auto &[needed, delay] : problem.inputs(task))
        if (problem.stageOf[needed.chunk] != problem.stageOf[task.chunk])
          stage.push_back(transfer(false, needed));
      stage.push_back(Instruction::compute(task));
      if (consumer(problem, task))
        stage.push_back(transfer(true, task));
    }
  }
  return program;
}

int pc::pipeline::slotsFor(const Problem &problem, const Program &program) {
  for (int slots = 2; slots <= std::max(2, problem.microbatches); ++slots)
    if (findStall(program, slots).circle.empty())
      return slots;
  return 0;
}
