//===- LineRelay.cpp - A rank's output, line by line, with its name -------===//
// A line is written by one call of write(2), so that it stays in one piece; very long lines are split.
//===----------------------------------------------------------------------===//
#include "launch/LineRelay.h"
#include "base/Printing.h"

#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

using namespace pcrt;

bool LineRelay::open(const std::string &linePrefix) {
  prefix = linePrefix;
  if (pipe2(ends, O_CLOEXEC) != 0)
    return false;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return true;
}

LineRelay::~LineRelay() {
  for (int end : ends)
    if (end >= 0)
      close(end);
}

void LineRelay::closeWriteEnd() {
  close(ends[1]);
  ends[1] = -1;
}

void LineRelay::write(size_t length) {
  // One write per line, so that it stays in one piece.
  std::string line = prefix + pending.substr(0, length);
  if (line.back() != '\n')
    line += '\n';
  fwrite(line.data(), 1, line.size(), stderr);
  pending.erase(0, length);
}

bool LineRelay::forwardSome() {
  constexpr size_t longest = 64 << 10;
  // Prefixes make short lines up to 13 times as long. Printing accepts that many bytes unless it is too slow.
  char buffer[8 << 10];
  ssize_t count = ends[0] < 0 ? -1 : read(ends[0], buffer, sizeof buffer);
  if (count < 0)
    return false; // nothing there now
  if (count == 0) {
    close(ends[0]);
    ends[0] = -1;
    return false;
  }
  pending.append(buffer, count);
  size_t end;
  while ((end = pending.find('\n')) != std::string::npos)
    write(end + 1);
  if (pending.size() > longest)
    write(pending.size());
  return true;
}

/// Reads at most what a pipe holds, because a rank that writes without end must not keep the launcher from its other
/// work.
static constexpr int readsPerTurn = 8;

void LineRelay::forward() {
  for (int reads = 0; reads < readsPerTurn && !printingLagsBehind() && forwardSome(); ++reads)
    ;
}

void LineRelay::finish() {
  for (int reads = 0; reads < readsPerTurn && forwardSome(); ++reads)
    if (printingLagsBehind())
      finishPrinting();
  if (!pending.empty())
    write(pending.size());
}
