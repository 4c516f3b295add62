//===- Metrics.h - What a server counts -----------------------------------===//
// Prometheus reads these numbers as text (version 0.0.4 of its format).
//===----------------------------------------------------------------------===//
#ifndef PCRT_SERVE_METRICS_H
#define PCRT_SERVE_METRICS_H

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace pcrt {

/// Counts of a server since it started. Any number of threads may use it.
class ServerMetrics {
public:
  /// A request began.
  void begin();
  /// Counts the first token of a request, which came after `seconds`.
  void firstToken(double seconds);
  /// A request that began ended: its finish reason, or `cancelled`, `timeout`, `error`.
  void end(const std::string &outcome, size_t promptTokens, size_t newTokens, double seconds);
  /// An HTTP response was sent.
  void response(int status);

  std::string text() const;

private:
  /// The number of values up to each limit, their number and their sum.
  struct Histogram {
    static constexpr double limits[] = {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};
    std::array<uint64_t, 9> counts = {};
    uint64_t count = 0;
    double sum = 0;

    void add(double value);
    void write(std::string &to, const char *name, const char *help) const;
  };

  mutable std::mutex mutex;
  int64_t active = 0;
  uint64_t promptTokens = 0, newTokens = 0;
  std::map<std::string, uint64_t> outcomes;
  std::map<int, uint64_t> responses;
  Histogram firstTokens, requests;
};

} // namespace pcrt

#endif // PCRT_SERVE_METRICS_H
