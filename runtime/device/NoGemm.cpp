//===- NoGemm.cpp - no matrix products on the CPU -------------------------===//
//
// In the place of Gemm.cpp in programs for other devices, which then need no
// oneDNN where they run.
//
//===----------------------------------------------------------------------===//
#include "device/Gemm.h"

using namespace pcrt;

struct Gemms::Part {};
struct Gemms::Plan {};
struct Gemms::ThreadState {};

const char *pcrt::checkGemm(const pcrt_gemm_desc &) { return "no library in a program for another device"; }

Gemms::Gemms(Pool &pool, const pcrt_gemm_desc *, int) : pool(pool) {}
Gemms::~Gemms() = default;
void Gemms::warmUp(void *, int64_t) {}

bool Gemms::run(int, const void *, const void *, void *, const void *, const char **error) {
  *error = "this program is for another device";
  return false;
}
