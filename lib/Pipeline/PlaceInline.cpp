//===- PlaceInline.cpp - One thread per device ---------------------------------------------===//
// Receives right before their reader, sends right behind their producer, all in the order of the tasks. Whether that
// stalls depends on how many messages a channel holds: found by trying.
//===-----------------------------------------------------------------------------===//
#include "Stall.h"

using namespace pc::pipeline;

Program pc::pipeline::placeInline(const Problem &problem, const Order &order) {
  Program program;
  auto transfer = [&](bool send, const Task &message) {
    Channel channel{problem.device[message.chunk], problem.device[consumer(problem, message)->chunk], message.kind,
                    message.chunk};
    return Instruction{Instruction::Transfer, "compute", {}, {{send, channel, message}}, "", "", {}};
  };
  for (const auto &tasks : order) {
    std::vector<Instruction> &device = program.devices.emplace_back();
    for (const Task &task : tasks) {
      for (const auto &[needed, delay] : problem.inputs(task))
        if (problem.device[needed.chunk] != problem.device[task.chunk])
          device.push_back(transfer(false, needed));
      device.push_back(Instruction::compute(task));
      if (consumer(problem, task))
        device.push_back(transfer(true, task));
    }
  }
  return program;
}

int pc::pipeline::slotsFor(const Problem &problem, const Program &program) {
  for (int slots = 2; slots <= std::max(2, problem.microbatches); ++slots)
    if (findStall(problem, program, slots).circle.empty())
      return slots;
  return 0;
}
