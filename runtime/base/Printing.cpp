//===- Printing.cpp - Printing never waits for a reader -------------------===//
// A printer has a ring of bytes and one thread that writes it to a descriptor. A message either fits into the ring or
// is dropped as a whole, so that lines stay complete. If stdout and stderr are one file, they share a printer and keep
// their order.
//===----------------------------------------------------------------------===//
#include "base/Printing.h"
#include "base/SignalMask.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <poll.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace pcrt;

namespace {

/// Writes to a descriptor from a separate thread, which runs until the process ends; so does the printer. Any thread
/// may call it.
class Printer {
public:
  explicit Printer(int fd) : fd(fd) {
    SignalsMasked masked;
    std::thread([this] { run(); }).detach();
  }

  /// Drops `text` as a whole if the ring has no room for it. Allocates nothing.
  void add(const char *text, size_t length) {
    std::lock_guard<std::mutex> lock(mutex);
    if (dropped || length > sizeof ring - count) {
      dropped += std::max<int64_t>(std::count(text, text + length, '\n'), 1);
      return;
    }
    for (size_t i = 0; i < length; ++i)
      ring[(begin + count + i) % sizeof ring] = text[i];
    count += length;
    changed.notify_all();
  }

  /// Waits until everything is written; gives up after two seconds without progress.
  void drain() {
    std::unique_lock<std::mutex> lock(mutex);
    for (size_t left = count + 1; count > 0 && count < left;) {
      left = count;
      changed.wait_for(lock, std::chrono::seconds(2), [&] { return count < left; });
    }
  }

  bool failed() const { return hasFailed; }
  bool lagsBehind() {
    std::lock_guard<std::mutex> lock(mutex);
    return count > sizeof ring / 4;
  }

private:
  void run() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr); // a pipe without a reader ends a run
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return count > 0; });
      size_t length = std::min({count, sizeof ring - begin, size_t(4096)});
      const char *piece = ring + begin;
      if (const void *end = memrchr(piece, '\n', length)) // whole lines stay in one piece
        length = size_t(static_cast<const char *>(end) - piece) + 1;
      lock.unlock();
      size_t done = write(piece, length);
      lock.lock();
      begin = (begin + done) % sizeof ring;
      count -= done;
      if (count == 0 && dropped)
        sayWhatIsMissing();
      changed.notify_all();
    }
  }

  /// Returns the number of bytes of the piece that need no further attempt, because they are written or lost.
  size_t write(const char *piece, size_t length) {
    ssize_t written = ::write(fd, piece, length);
    if (written >= 0)
      return size_t(written);
    if (errno == EINTR)
      return 0;
    if (errno == EAGAIN) { // another process has made the file non-blocking
      pollfd entry{fd, POLLOUT, 0};
      poll(&entry, 1, -1);
      return 0;
    }
    bool isGone = errno == EPIPE; // without a reader, the run ends without a message
    if (!hasFailed.exchange(true) && fd != STDERR_FILENO && !isGone)
      fprintf(stderr, "pc: warning: cannot write to standard output: %s; the run continues\n", strerror(errno));
    return length;
  }

  /// Prints how many lines were dropped. The caller holds the lock, and the ring is empty.
  void sayWhatIsMissing() {
    begin = 0;
    count = size_t(snprintf(ring, sizeof ring,
                            "pc: warning: %lld lines of output were dropped here because they were not read in time\n",
                            (long long)dropped));
    dropped = 0;
  }

  int fd;
  std::mutex mutex;
  std::condition_variable changed;
  char ring[256 << 10];
  size_t begin = 0, count = 0; ///< What is in the ring.
  int64_t dropped = 0;         ///< Lines.
  std::atomic<bool> hasFailed{false};
};

} // namespace

/// The printers of standard output and standard error; never destroyed, since their threads continue.
static Printer *printers[2];

static ssize_t addToPrinter(void *printer, const char *text, size_t length) {
  static_cast<Printer *>(printer)->add(text, length);
  return ssize_t(length);
}

/// Returns true if stdout and stderr are the same file.
static bool areOneFile() {
  struct stat out, error;
  return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &error) == 0 && out.st_dev == error.st_dev &&
         out.st_ino == error.st_ino;
}

static FILE *streamTo(Printer *printer, int mode) {
  FILE *stream = fopencookie(printer, "w", {nullptr, addToPrinter, nullptr, nullptr});
  if (stream)
    setvbuf(stream, nullptr, mode, BUFSIZ);
  return stream;
}

void pcrt::printInBackground() {
  if (printers[0])
    return;
  fflush(stdout);
  printers[0] = new Printer(STDOUT_FILENO);
  printers[1] = areOneFile() ? printers[0] : new Printer(STDERR_FILENO);
  FILE *out = streamTo(printers[0], isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF), *error = streamTo(printers[1], _IONBF);
  if (!out || !error) // there is no memory, so output is printed as before
    return;
  stdout = out;
  stderr = error;
  atexit([] { finishPrinting(); });
}

bool pcrt::finishPrinting() {
  fflush(stdout);
  for (Printer *printer : printers)
    if (printer)
      printer->drain();
  return !printers[0] || !printers[0]->failed();
}

bool pcrt::printingLagsBehind() { return printers[1] && printers[1]->lagsBehind(); }
