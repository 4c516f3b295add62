//===- Checks.h - Checks for tests in C++ ---------------------------------===//
// A check that fails is printed, and the test continues; main ends with finishChecks(). Failures go to standard error,
// because the standard output of tests is compared.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_CHECKS_H
#define PC_TEST_CHECKS_H

#include <cstdio>
#include <cstdlib>
#include <string>

/// The number of checks, and the number of failed checks.
inline int checks = 0, failures = 0;

/// A check that may fail; returns whether it held. If there are many failures, only the first ones are printed.
inline bool expect(bool good, const char *what) {
  ++checks;
  if (!good && ++failures <= 20)
    fprintf(stderr, "FAILED: %s\n", what);
  return good;
}
inline bool expect(bool good, const std::string &what) { return expect(good, what.c_str()); }

/// A check without which the rest of the test is meaningless: a failure ends the process.
inline void require(bool good, const char *what) {
  if (!expect(good, what))
    exit(1);
}

#define CHECKS_TEXT_(line) #line
#define CHECKS_TEXT(line) CHECKS_TEXT_(line)
/// A check whose message is its own source text, with its place.
#define CHECK(condition) expect(bool(condition), __FILE__ ":" CHECKS_TEXT(__LINE__) ": " #condition)

/// Prints the result and returns the exit status.
inline int finishChecks() {
  printf("%d checks passed, %d failed\n", checks - failures, failures);
  return failures != 0;
}

#endif // PC_TEST_CHECKS_H
