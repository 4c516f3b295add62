//===- Checks.h - What tests in C++ check with ----------------------------===//
// A check that does not hold is told, and the test goes on; main ends with finishChecks(). Printed on standard error,
// since what tests print otherwise is compared.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_CHECKS_H
#define PC_TEST_CHECKS_H

#include <cstdio>
#include <cstdlib>
#include <string>

/// How many there were, and how many of them did not hold.
inline int checks = 0, failures = 0;

/// A check that may fail; returns whether it held. Of many failures the first ones are told.
inline bool expect(bool good, const char *what) {
  ++checks;
  if (!good && ++failures <= 20)
    fprintf(stderr, "FAILED: %s\n", what);
  return good;
}
inline bool expect(bool good, const std::string &what) { return expect(good, what.c_str()); }

/// A check without which the rest has no meaning.
inline void require(bool good, const char *what) {
  if (!expect(good, what))
    exit(1);
}

#define CHECKS_TEXT_(line) #line
#define CHECKS_TEXT(line) CHECKS_TEXT_(line)
/// A check that is told as it is written, with its place.
#define CHECK(condition) expect(bool(condition), __FILE__ ":" CHECKS_TEXT(__LINE__) ": " #condition)

/// Says how it went; the exit status.
inline int finishChecks() {
  printf("%d checks passed, %d failed\n", checks - failures, failures);
  return failures != 0;
}

#endif // PC_TEST_CHECKS_H
