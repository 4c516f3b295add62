//===- NotedSignals.h - Signals that do not end the process for a while --------------------===//
// Delays signals during work that must not be interrupted, such as linking, or during a search that can end early with
// its best plan.
//===-----------------------------------------------------------------------------===//
#ifndef PC_SUPPORT_NOTEDSIGNALS_H
#define PC_SUPPORT_NOTEDSIGNALS_H

#include <atomic>
#include <csignal>
#include <utility>
#include <vector>

namespace pc {

/// During the lifetime of this object, some signals are noted and do not end the process. Signals that the caller of
/// the process ignores stay ignored. Only one object may exist at a time.
class NotedSignals {
public:
  /// `flags` are flags of sigaction: with SA_RESETHAND, a second signal of the same number ends the process.
  explicit NotedSignals(std::initializer_list<int> numbers, int flags = 0) {
    noted = 0;
    struct sigaction note{}, old{};
    note.sa_handler = [](int number) {
      int none = 0;
      noted.compare_exchange_strong(none, number);
    };
    note.sa_flags = flags;
    for (int number : numbers) {
      sigaction(number, nullptr, &old);
      before.emplace_back(number, old);
      if (old.sa_handler != SIG_IGN)
        sigaction(number, &note, nullptr);
    }
  }
  ~NotedSignals() {
    for (auto &[number, old] : before)
      sigaction(number, &old, nullptr);
  }
  NotedSignals(const NotedSignals &) = delete;
  NotedSignals &operator=(const NotedSignals &) = delete;

  /// The number of the first signal, or 0 if there was none.
  int first() const { return noted; }

private:
  static inline std::atomic<int> noted = 0;
  std::vector<std::pair<int, struct sigaction>> before;
};

} // namespace pc

#endif
