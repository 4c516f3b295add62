//===- Metrics.cpp - What a server counts ---------------------------------===//
// Names follow Prometheus: a base unit in the name, and _total for counters.
//===----------------------------------------------------------------------===//
#include "serve/Metrics.h"

using namespace pcrt;

static std::string number(double value) {
  char text[32];
  snprintf(text, sizeof text, "%.9g", value);
  return text;
}

static void describe(std::string &to, const char *name, const char *type, const char *help) {
  to += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

void ServerMetrics::Histogram::add(double value) {
  for (size_t i = 0; i < counts.size(); ++i)
    counts[i] += value <= limits[i];
  ++count, sum += value;
}

void ServerMetrics::Histogram::write(std::string &to, const char *name, const char *help) const {
  describe(to, name, "histogram", help);
  for (size_t i = 0; i < counts.size(); ++i)
    to += std::string(name) + "_bucket{le=\"" + number(limits[i]) + "\"} " + std::to_string(counts[i]) + "\n";
  to += std::string(name) + "_bucket{le=\"+Inf\"} " + std::to_string(count) + "\n";
  to += std::string(name) + "_sum " + number(sum) + "\n" + name + "_count " + std::to_string(count) + "\n";
}

void ServerMetrics::begin() {
  std::lock_guard<std::mutex> lock(mutex);
  ++active;
}

void ServerMetrics::firstToken(double seconds) {
  std::lock_guard<std::mutex> lock(mutex);
  firstTokens.add(seconds);
}

void ServerMetrics::end(const std::string &outcome, size_t prompt, size_t tokens, double seconds) {
  std::lock_guard<std::mutex> lock(mutex);
  --active, ++outcomes[outcome];
  promptTokens += prompt, newTokens += tokens;
  requests.add(seconds);
}

void ServerMetrics::response(int status) {
  std::lock_guard<std::mutex> lock(mutex);
  ++responses[status];
}

std::string ServerMetrics::text() const {
  std::lock_guard<std::mutex> lock(mutex);
  std::string text;
  auto one = [&](const char *name, const char *type, const char *help, auto value) {
    describe(text, name, type, help);
    text += std::string(name) + " " + std::to_string(value) + "\n";
  };
  one("pc_requests_active", "gauge", "Requests that are waiting or being answered.", active);
  one("pc_prompt_tokens_total", "counter", "Tokens of prompts of requests that ended.", promptTokens);
  one("pc_generated_tokens_total", "counter", "Tokens that requests got until they ended.", newTokens);
  describe(text, "pc_requests_total", "counter", "Requests that ended, by how they ended.");
  for (const auto &[outcome, count] : outcomes)
    text += "pc_requests_total{outcome=\"" + outcome + "\"} " + std::to_string(count) + "\n";
  describe(text, "pc_http_responses_total", "counter", "HTTP responses by status.");
  for (const auto &[status, count] : responses)
    text += "pc_http_responses_total{status=\"" + std::to_string(status) + "\"} " + std::to_string(count) + "\n";
  firstTokens.write(text, "pc_first_token_seconds", "Time from a request to its first token.");
  requests.write(text, "pc_request_seconds", "Time from a request to its end.");
  return text;
}
