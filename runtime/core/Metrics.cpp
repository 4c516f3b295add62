//===- Metrics.cpp - what is told about every step ------------------------===//
#include "core/Metrics.h"
#include "base/Failure.h"
#include "base/InputFile.h"
#include "device/Profile.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace pcrt;

Metrics::Metrics(const std::string &path, const std::string &events, int64_t steps)
    : path(path), steps(steps), terminal(isatty(STDOUT_FILENO) == 1) {
  if (!events.empty())
    this->events.emplace(events);
  if (path.empty())
    return;
  fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
}

/// The bytes of the lines of steps before `firstStep` at the beginning of `text`. -1: one is no line of metrics.
static int64_t bytesBefore(const std::string &text, int64_t firstStep) {
  size_t at = 0;
  for (size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    long long step = -1;
    if (sscanf(text.c_str() + at, "{\"step\": %lld,", &step) != 1)
      return -1;
    if (step >= firstStep)
      break;
  }
  return int64_t(at);
}

void Metrics::begin(int64_t first) {
  firstStep = first;
  startTime = nanoseconds();
  if (events)
    events->begin(first);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) // a pipe or a terminal has no lines of before
    return;
  int64_t keep = 0;
  if (firstStep > 0) {
    keep = bytesBefore(InputFile(path).text(), firstStep);
    if (keep < 0)
      fail(PCRT_USAGE, "--metrics " + path + ": the file holds other things than the metrics of the steps before " +
                           std::to_string(firstStep) + ", behind which they would be written");
  }
  if (ftruncate(fd, keep) != 0 || lseek(fd, keep, SEEK_SET) != keep)
    fail(PCRT_RESOURCE, withErrno("cannot write " + path));
}

Metrics::~Metrics() {
  finish(); // an error message begins on a line of its own
  if (fd >= 0)
    close(fd);
}

/// "  12 %, 1:02:03 left", by the mean of this run's steps; nothing behind the last step, or before one has ended.
std::string Metrics::timeLeft(int64_t done, int64_t now) const {
  if (done >= steps || done <= firstStep)
    return "";
  auto seconds = int64_t(double(now - startTime) * 1e-9 / double(done - firstStep) * double(steps - done) + 0.5);
  char text[64];
  snprintf(text, sizeof text, "  %lld %%, %lld:%02lld:%02lld left", (long long)(100 * done / steps),
           (long long)(seconds / 3600), (long long)(seconds / 60 % 60), (long long)(seconds % 60));
  return text;
}

void Metrics::add(const StepFigures &figures) {
  double rate = figures.seconds > 0 ? double(figures.tokens) / figures.seconds : 0;
  if (fd >= 0) {
    char line[512];
    int length = snprintf(line, sizeof line,
                          "{\"step\": %lld, \"loss\": %.9g, \"grad_norm\": %.9g, \"lr\": %.9g, \"tokens\": %lld, "
                          "\"step_seconds\": %.6g, \"tokens_per_second\": %.6g}\n",
                          (long long)figures.step, figures.loss, figures.gradNorm.value_or(0), figures.lr,
                          (long long)figures.tokens, figures.seconds, rate);
    ssize_t written = write(fd, line, length);
    if (written >= 0 && written < length)
      errno = ENOSPC; // a short write
    if (written != length)
      fail(PCRT_RESOURCE, withErrno("cannot write " + path));
  }
  if (events) {
    Scalar scalars[] = {{"train/loss", float(figures.loss)},
                        {"train/learning_rate", float(figures.lr)},
                        {"speed/tokens_per_second", float(rate)},
                        {"speed/step_seconds", float(figures.seconds)},
                        {"train/gradient_norm", float(figures.gradNorm.value_or(0))}};
    events->add(figures.step, std::span(scalars).first(figures.gradNorm ? 5 : 4));
  }
  int64_t now = nanoseconds();
  bool last = figures.step + 1 == steps;
  if (lastShown && !last && now - lastShown < (terminal ? 100'000'000 : 1'000'000'000))
    return;
  lastShown = now;
  char norm[32] = "";
  if (figures.gradNorm)
    snprintf(norm, sizeof norm, "  norm %.3g", *figures.gradNorm);
  printf("%sstep %lld/%lld  loss %.4f%s  %.0f tokens/s%s%s", terminal ? "\r\033[K" : "", (long long)figures.step + 1,
         (long long)steps, figures.loss, norm, rate, timeLeft(figures.step + 1, now).c_str(), terminal ? "" : "\n");
  lineOpen = terminal;
  fflush(stdout);
}

void Metrics::finish() {
  if (lineOpen)
    putchar('\n');
  lineOpen = false;
  fflush(stdout);
}
