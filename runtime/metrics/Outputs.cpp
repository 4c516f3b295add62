//===- Outputs.cpp - The outputs of a step --------------------------------===//
// Dumps are written through temporary files and renamed when complete. Logits of a microbatch are rows of the global
// tensor; in zigzag order they are written position by position.
//===----------------------------------------------------------------------===//
#include "metrics/Outputs.h"
#include "base/Failure.h"
#include "base/Types.h"
#include "comm/Collective.h"
#include "data/Data.h"
#include "pcrt/description.h"

#include <climits>
#include <cmath>
#include <cstdio>

using namespace pcrt;

Outputs::Outputs(const Program &program, Comm &comm, const std::string &gradsPath, const std::string &logitsPath)
    : program(program), comm(comm), targets(program.outputs.size()), rooted(program.rounds.any()) {
  makeDump(grads, "gradient", gradsPath);
  makeDump(logits, "logits", logitsPath);
  for (const Program *stage : program.stages)
    for (const Output &output : stage->outputs)
      if (output.kind == "loss" || output.kind == "grad_norm") {
        rooted |= !output.root.empty();
        sees &= output.isOn(program.mesh, comm.rank());
      }
}

/// Creates the temporary file of a dump on rank 0, and returns its path on all ranks.
std::string Outputs::openDump(Dump &dump) {
  onAllRanks(comm, [&] {
    if (comm.rank() == 0 && !dump.file.open(dump.path))
      fail(PCRT_RESOURCE, withErrno("cannot write " + dump.path));
  });
  char mine[PATH_MAX] = {};
  dump.file.temporary().copy(mine, sizeof mine - 1);
  std::vector<char> all(size_t(comm.size()) * sizeof mine);
  requireOk(comm, comm.allGatherBytes(mine, sizeof mine, all.data()));
  return all.data();
}

void Outputs::makeDump(Dump &dump, const std::string &kind, const std::string &path) {
  if (path.empty())
    return;
  dump.path = path;
  dump.writer = std::make_unique<SafetensorsWriter>(openDump(dump));
  dumping = true;
  bool any = false;
  for (const Program *stage : program.stages)
    for (const Output &output : stage->outputs) {
      if (output.kind != kind)
        continue;
      any = true;
      if (kind == "logits")
        dump.writer->add("logits", output.valid);
      else
        for (const Part &part : stage->parameters[output.parameter].parts)
          dump.writer->add(part.source, part.shape);
    }
  if (!any)
    fail(PCRT_USAGE, "this program has no output " + kind + (kind == "logits" ? "" : "s") + " to write to " + path +
                         (program.training ? "" : "; it was compiled with --mode=eval"));
  onAllRanks(comm, [&] {
    if (comm.rank() == 0)
      dump.writer->create();
  });
  onAllRanks(comm, [&] {
    if (comm.rank() != 0)
      dump.writer->open();
  });
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const Output &output = program.outputs[i];
    if (output.kind != kind)
      continue;
    if (kind == "logits" ? holderOf(program.mesh, output.layout, comm.rank(), {program.stageAxis}).index != 0
                         : !program.writes(output, program.parameters[output.parameter], comm.rank()))
      continue;
    Target &target = targets[i];
    target.dump = &dump;
    if (kind == "logits") {
      Dims shape = output.shape;
      shape[0] /= program.microbatches;
      target.pieces = {{dump.writer->placeOf("logits"), output.valid,
                        blockOf(program.mesh, shape, output.layout, comm.rank()), Box::whole(output.valid)}};
    } else {
      Block block = blockOf(program.mesh, output.shape, output.layout, comm.rank());
      for (const Part &part : program.parameters[output.parameter].parts)
        target.pieces.push_back({dump.writer->placeOf(part.source), part.size, part.inPart(block), part.box});
    }
  }
}

void Outputs::route(const std::string &from, const std::string &to, int64_t firstStep, int64_t endStep) {
  if (!from.empty() || !to.empty())
    routing = std::make_unique<Routing>(program, comm, from, to, firstStep, endStep);
}

void Outputs::beginStep(std::optional<int64_t> step) {
  lossSum = 0;
  norm.reset();
  isStep = step.has_value();
  if (routing && step)
    routing->beginStep(*step);
}

void Outputs::finish() {
  if (routing)
    routing->finish();
}

void Outputs::endStep(const std::vector<int64_t> &counted) {
  shareFigures(counted);
  if (routing && isStep)
    routing->endStep();
}

void Outputs::shareFigures(const std::vector<int64_t> &counted) {
  if (!rooted)
    return;
  struct Seen {
    double loss, norm;
    int32_t hasNorm, isThere;
  };
  Seen mine{lossSum, norm.value_or(0), norm.has_value(), sees};
  std::vector<Seen> all(comm.size());
  requireOk(comm, comm.allGatherBytes(&mine, sizeof mine, all.data()));
  // For replicas of local SGD, the mean loss and the largest norm are reported; if a norm is not finite, that norm is
  // reported.
  double losses = 0;
  int64_t withTargets = 0;
  std::optional<double> largest;
  for (int64_t replica = 0; replica < program.rounds.replicas; ++replica) {
    if (counted[size_t(replica)] == 0)
      continue;
    auto isFirst = [&](const Seen &seen) {
      return seen.isThere && program.replicaOf(int(&seen - all.data())) == replica;
    };
    auto first = std::find_if(all.begin(), all.end(), isFirst);
    if (first == all.end())
      return;
    losses += first->loss;
    ++withTargets;
    if (first->hasNorm && (!largest || (std::isfinite(*largest) && !(first->norm <= *largest))))
      largest = first->norm;
  }
  if (withTargets == 0)
    return;
  norm = largest;
  lossSum = losses / double(withTargets);
}

bool Outputs::wants(int index) const {
  const std::string &kind = program.outputs[index].kind;
  if (kind == PCRT_ROUTING)
    return routing && isStep;
  return kind == "loss" || kind == "grad_norm" || (dumping && targets[index].dump);
}

/// Writes the rows of a microbatch. It changes `piece` and restores it, because a step allocates nothing.
pcrt_status Outputs::writeLogits(const SafetensorsWriter &writer, const Output &output, Piece &piece,
                                 int64_t microbatch, const void *data) const {
  Block &block = piece.block;
  int64_t shift = rowOf(program, microbatch, block.start[0]) - block.start[0];
  block.start[0] += shift;
  pcrt_status status = PCRT_OK;
  if (program.zigzag) {
    // In zigzag order neighbours are not adjacent in the file, so rows are written position by position.
    const auto *bytes = static_cast<const char *>(data);
    int64_t rows = block.size[0], columns = block.size[1], row = block.start[0], column = block.start[1];
    block.size[0] = block.size[1] = 1;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t s = 0; s < columns && status == PCRT_OK; ++s) {
        block.start[0] = row + r;
        block.start[1] = program.position(column + s);
        status = writer.write(piece.place, piece.valid, block, piece.box, output.dtype, bytes);
        bytes += block.size[2] * elementBytes(output.dtype);
      }
    block.size[0] = rows, block.size[1] = columns, block.start[0] = row, block.start[1] = column;
  } else {
    status = writer.write(piece.place, piece.valid, block, piece.box, output.dtype, data);
  }
  block.start[0] -= shift;
  return status;
}

pcrt_status Outputs::observe(int index, int64_t microbatch, void *data, std::string *error) {
  const Output &output = program.outputs[index];
  if (!output.isOn(program.mesh, comm.rank()))
    return PCRT_OK;
  if (output.kind == "loss") {
    lossSum += *static_cast<const float *>(data);
    return PCRT_OK;
  }
  if (output.kind == "grad_norm") {
    norm = *static_cast<const float *>(data);
    return PCRT_OK;
  }
  if (output.kind == PCRT_ROUTING)
    return wants(index) ? routing->observe(index, microbatch, static_cast<float *>(data), error) : PCRT_OK;
  Target &target = targets[index];
  if (!dumping || !target.dump || target.dump->problem)
    return PCRT_OK;
  const SafetensorsWriter &writer = *target.dump->writer;
  pcrt_status status = PCRT_OK;
  if (output.kind != "logits") {
    for (const Piece &piece : target.pieces)
      if (status == PCRT_OK)
        status = writer.write(piece.place, piece.valid, piece.block, piece.box, output.dtype, data);
  } else {
    status = writeLogits(writer, output, target.pieces[0], microbatch, data);
  }
  if (status != PCRT_OK)
    target.dump->problem = Failure{status, withErrno("cannot write " + target.dump->path)};
  return PCRT_OK;
}

void Outputs::finishDumps() {
  if (!dumping)
    return;
  dumping = false;
  for (Dump *dump : {&grads, &logits}) {
    if (!dump->writer)
      continue;
    dump->writer->close();
    dump->problem = firstFailure(comm, dump->problem);
    if (!dump->problem && dump->file.descriptor() >= 0 && !dump->file.commit())
      dump->problem = Failure{PCRT_RESOURCE, withErrno("cannot write " + dump->path)};
    dump->problem = firstFailure(comm, dump->problem);
    dump->file.discard();
    if (dump->problem && comm.rank() == 0)
      fprintf(stderr, "pc: warning: %s; the run continues without it\n", dump->problem->message.c_str());
  }
}

std::optional<Failure> Outputs::lostDump() const {
  for (const std::optional<Failure> &problem :
       {grads.problem, logits.problem, routing ? routing->failure() : std::nullopt})
    if (problem)
      return problem;
  return std::nullopt;
}
