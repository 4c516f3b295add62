//===- StateImage.cpp - A copy of parameters and states in host memory ----===//
// The parts of an image are in the order of their offsets in the arena, without gaps.
//===----------------------------------------------------------------------===//
#include "checkpoint/StateImage.h"
#include "base/Block.h"
#include "base/Types.h"

using namespace pcrt;

StateImage::StateImage(const Program &program, int rank) {
  auto add = [&](const Tensor &tensor) {
    int64_t elements = blockOf(program.mesh, tensor.shape, tensor.layout, rank).elements();
    places[tensor.offset] = {0, elements * elementBytes(tensor.dtype)};
  };
  for (const Parameter &parameter : program.parameters)
    add(parameter);
  for (const State &state : program.states)
    add(state);
  for (auto &[offset, place] : places) {
    place.at = total;
    total += place.bytes;
  }
}

std::vector<Device::HostCopy> StateImage::copiesTo(char *memory) const {
  std::vector<Device::HostCopy> copies;
  forEach([&](int64_t offset, int64_t place, int64_t bytes) { copies.push_back({offset, bytes, memory + place}); });
  return copies;
}
