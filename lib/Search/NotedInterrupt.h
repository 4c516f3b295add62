//===- NotedInterrupt.h - Ctrl-C as a question ------------------------------------------------===//
#ifndef PC_LIB_SEARCH_NOTEDINTERRUPT_H
#define PC_LIB_SEARCH_NOTEDINTERRUPT_H

#include <atomic>
#include <csignal>

namespace pc {

/// While it lives, the first Ctrl-C is noted, where it would end the process; a second one does.
class NotedInterrupt {
public:
  NotedInterrupt() {
    seen = 0;
    struct sigaction noted{};
    noted.sa_handler = [](int) { seen = 1; };
    noted.sa_flags = SA_RESETHAND;
    sigaction(SIGINT, nullptr, &before);
    if (before.sa_handler != SIG_IGN)
      sigaction(SIGINT, &noted, nullptr);
  }
  ~NotedInterrupt() { sigaction(SIGINT, &before, nullptr); }
  NotedInterrupt(const NotedInterrupt &) = delete;
  NotedInterrupt &operator=(const NotedInterrupt &) = delete;

  bool happened() const { return seen; }

private:
  static inline std::atomic<int> seen = 0;
  struct sigaction before{};
};

} // namespace pc

#endif
