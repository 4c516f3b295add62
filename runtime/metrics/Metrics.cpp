//===- Metrics.cpp - The metrics of every step ----------------------------===//
// When a run continues, the lines of later steps are cut off, so that a file has each step once. Numbers that are not
// finite become null in JSON.
//===----------------------------------------------------------------------===//
#include "metrics/Metrics.h"
#include "base/Failure.h"
#include "base/InputFile.h"
#include "comm/Comm.h"
#include "device/Profile.h"
#include "metrics/PeakRate.h"

#include <cmath>
#include <cstdio>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

using namespace pcrt;

StepWork StepWork::of(const Program &program, int ranks) {
  StepWork work;
  work.arenaBytes = program.abi.arena_bytes;
  work.flops = program.report.value("flops_per_step", 0.) / ranks;
  if (program.abi.target == PCRT_CPU)
    work.peakSeconds = secondsAtPeak(program.report, ranks, calibratedPeak(threadsOfThisRank()));
  return work;
}

Metrics::Metrics(const std::string &path, const std::string &events, int64_t steps, const StepWork &work)
    : path(path), steps(steps), work(work), terminal(isatty(STDOUT_FILENO) == 1) {
  if (!events.empty())
    this->events.emplace(events);
  if (path.empty())
    return;
  lines.open(path, 0);
}

/// The bytes of the lines of steps before `firstStep` at the beginning of `text`; -1: a line is not one of metrics.
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
  if (!lines.isRegular()) // a pipe or a terminal has no earlier lines
    return;
  int64_t keep = 0;
  if (firstStep > 0) {
    keep = bytesBefore(InputFile(path).text(), firstStep);
    if (keep < 0)
      fail(PCRT_USAGE, "--metrics " + path +
                           ": the file contains something other than the metrics of the steps before " +
                           std::to_string(firstStep) + "; use another file, or remove it");
  }
  lines.cut(keep);
}

Metrics::~Metrics() {
  finish(); // an error message begins on a new line
}

/// "12 %, 1:02:03 left", by the mean time of this run's steps; empty after the last step, or before the first has
/// ended.
std::string Metrics::timeLeft(int64_t done, int64_t now) const {
  if (done >= steps || done <= firstStep)
    return "";
  auto seconds = std::lround(double(now - startTime) * 1e-9 / double(done - firstStep) * double(steps - done));
  char text[64];
  snprintf(text, sizeof text, "%lld %%, %lld:%02lld:%02lld left", (long long)(100 * done / steps),
           (long long)(seconds / 3600), (long long)(seconds / 60 % 60), (long long)(seconds % 60));
  return text;
}

/// A JSON number, or null for values that are not finite.
static std::string jsonNumber(double value) {
  char text[32];
  snprintf(text, sizeof text, "%.9g", value);
  return std::isfinite(value) ? text : "null";
}

static double tokensPerSecond(const StepFigures &figures) {
  return figures.seconds > 0 ? double(figures.tokens) / figures.seconds : 0;
}

double Metrics::partOfPeak(const StepFigures &figures) const {
  return figures.seconds > 0 ? work.peakSeconds / figures.seconds : 0;
}

void Metrics::writeLine(const char *line, int length) {
  iovec part{const_cast<char *>(line), size_t(length)};
  lines.add(&part, 1);
}

/// "12 %"
static std::string percent(double part, double whole) { return std::to_string(std::lround(100 * part / whole)) + " %"; }

/// The number of characters in a line of the terminal.
static size_t terminalWidth() {
  winsize size;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

void Metrics::showProgress(const StepFigures &figures) {
  int64_t now = nanoseconds();
  bool last = figures.step + 1 == steps;
  if (lastShown && !last && now - lastShown < (terminal ? 100'000'000 : 1'000'000'000))
    return;
  lastShown = now;
  auto text = [](const char *format, auto... values) {
    char buffer[96];
    snprintf(buffer, sizeof buffer, format, values...);
    return std::string(buffer);
  };
  // The most important items come first, because a terminal shows as many as fit.
  std::vector<std::string> fields = {text("step %lld/%lld", (long long)figures.step + 1, (long long)steps),
                                     figures.loss ? text("loss %.4f", *figures.loss) : "no targets"};
  if (validation)
    fields.push_back(text("validation %.4f", *validation));
  if (figures.gradNorm)
    fields.push_back(text("norm %.3g", *figures.gradNorm));
  fields.push_back(text("%.0f tokens/s", tokensPerSecond(figures)));
  if (std::string left = timeLeft(figures.step + 1, now); !left.empty())
    fields.push_back(left);
  if (skipped)
    fields.push_back(text("%lld skipped", (long long)skipped));
  if (figures.inMoves > 0)
    fields.push_back("moves " + percent(figures.inMoves, figures.seconds));
  if (work.flops > 0 && figures.seconds > 0)
    fields.push_back(text("%.3g Gflop/s per rank", work.flops / figures.seconds / 1e9));
  if (double part = partOfPeak(figures))
    fields.push_back(text("MFU %.1f %%", 100 * part));
  bool gigabytes = work.arenaBytes >> 30;
  fields.push_back(
      text("%.1f %s", double(work.arenaBytes) / double(gigabytes ? 1 << 30 : 1 << 20), gigabytes ? "GiB" : "MiB"));
  std::string line;
  for (const std::string &field : fields)
    if (!terminal || line.size() + 2 + field.size() < terminalWidth())
      line += (line.empty() ? "" : "  ") + field;
    else
      break;
  printf("%s%s%s", terminal ? "\r\033[K" : "", line.c_str(), terminal ? "" : "\n");
  lineOpen = terminal;
  fflush(stdout);
}

void Metrics::add(const StepFigures &figures) {
  skipped += figures.skipped;
  lastStep = figures;
  if (lines.isOpen()) {
    char line[512], mfu[32] = "";
    if (double part = partOfPeak(figures))
      snprintf(mfu, sizeof mfu, ", \"mfu\": %.6g", part);
    int length = snprintf(line, sizeof line,
                          "{\"step\": %lld, \"loss\": %s, \"grad_norm\": %s, \"lr\": %.9g, \"tokens\": %lld, "
                          "\"step_seconds\": %.6g, \"tokens_per_second\": %.6g, \"seconds_in_moves\": %.6g%s%s}\n",
                          (long long)figures.step, jsonNumber(figures.loss.value_or(NAN)).c_str(),
                          jsonNumber(figures.gradNorm.value_or(0)).c_str(), figures.lr, (long long)figures.tokens,
                          figures.seconds, tokensPerSecond(figures), figures.inMoves, mfu,
                          !figures.skipped ? ""
                          : figures.loss   ? ", \"skipped\": true"
                                           : ", \"skipped\": true, \"targets\": 0");
    writeLine(line, length);
  }
  if (events) {
    Scalar scalars[6] = {{"train/learning_rate", float(figures.lr)},
                         {"speed/tokens_per_second", float(tokensPerSecond(figures))},
                         {"speed/step_seconds", float(figures.seconds)}};
    size_t count = 3;
    if (figures.loss)
      scalars[count++] = {"train/loss", float(*figures.loss)};
    if (figures.gradNorm)
      scalars[count++] = {"train/gradient_norm", float(*figures.gradNorm)};
    if (double part = partOfPeak(figures))
      scalars[count++] = {"speed/mfu", float(part)};
    events->add(figures.step, std::span(scalars).first(count));
  }
  showProgress(figures);
}

void Metrics::addValidation(int64_t step, double loss, int64_t samples, double seconds) {
  validation = loss;
  if (lines.isOpen()) {
    char line[256];
    int length = snprintf(
        line, sizeof line,
        "{\"step\": %lld, \"validation_loss\": %s, \"validation_samples\": %lld, \"validation_seconds\": %.6g}\n",
        (long long)step, jsonNumber(loss).c_str(), (long long)samples, seconds);
    writeLine(line, length);
  }
  if (events) {
    Scalar scalar = {"validation/loss", float(loss)};
    events->add(step, {&scalar, 1});
  }
  if (step == steps && step > firstStep) { // no later step will show it
    lastShown = 0;
    showProgress(lastStep);
  }
}

void Metrics::finish() {
  if (lineOpen)
    putchar('\n');
  lineOpen = false;
  fflush(stdout);
}
