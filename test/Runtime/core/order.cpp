//===- order.cpp - Prints which windows of its data a run reads -----------===//
// usage: core-order [heldout] SHUFFLE SEED EVERY FROM TO WEIGHT:WINDOWS[,WINDOWS]...
// Each of the last arguments is a source; with EVERY 0 no window is held out. Prints "source file window" of samples
// FROM to TO - 1.
//===----------------------------------------------------------------------===//
#include "data/SampleOrder.h"

#include <cstdio>
#include <cstdlib>
#include <string>

using namespace pcrt;

int main(int argc, char **argv) {
  int at = 1;
  bool heldOut = argc > 1 && argv[1] == std::string("heldout");
  at += heldOut;
  auto number = [&] { return strtoull(argv[at++], nullptr, 10); };
  bool shuffle = number() != 0;
  uint64_t seed = number();
  HeldOut every{int64_t(number())};
  auto from = int64_t(number()), to = int64_t(number());
  std::vector<SampleOrder::Source> sources;
  for (; at < argc; ++at) {
    char *next = nullptr;
    SampleOrder::Source &source = sources.emplace_back();
    source.weight = strtod(argv[at], &next);
    while (*next)
      source.windows.push_back(strtoll(next + 1, &next, 10));
  }
  SampleOrder order(sources, shuffle, seed, every, heldOut);
  for (int64_t sample = from; sample < to; ++sample) {
    SampleOrder::Place place = order.of(sample);
    printf("%d %d %lld\n", place.source, place.file, (long long)place.window);
  }
  return 0;
}
