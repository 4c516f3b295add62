//===- Rows.cpp - The all_to_all of rows that a mask chooses --------------===//
// Buffers of both sides are ordered by expert, then outer index, then block of tokens. So segments() walks over the
// experts once, with a cursor for each member.
//===----------------------------------------------------------------------===//
#include "comm/Rows.h"
#include "base/Types.h"

#include <algorithm>
#include <cstring>

using namespace pcrt;

int64_t pcrt::mostRowsOfTokens(const pcrt_move_desc &desc, int n) {
  return desc.outer * (desc.extent / n) * desc.middle * std::min(routedOf(desc), desc.extent2);
}

int64_t pcrt::mostRowsOfExperts(const pcrt_move_desc &desc, int n) {
  return desc.outer * desc.extent * desc.middle * std::min(routedOf(desc), desc.extent2 / n);
}

std::string pcrt::checkRows(const pcrt_move_desc &desc) {
  if (!routedOf(desc))
    return "";
  if ((desc.dtype != PCRT_F32 && desc.dtype != PCRT_BF16) || routedOf(desc) < 0)
    return "routed tokens must be f32 or bf16";
  bool isEmpty = desc.outer * desc.extent * desc.middle * desc.extent2 == 0;
  return desc.codes || isEmpty ? "" : "routed tokens need a mask";
}

RowCounts &pcrt::rowCounts() {
  static thread_local RowCounts counts;
  return counts;
}

void RowCounts::reserve(const pcrt_move_desc &desc, int members) {
  counts.reserve(size_t(desc.outer * members * desc.extent2));
  next.reserve(size_t(members));
  list.reserve(counts.capacity());
}

void RowCounts::begin(const pcrt_move_desc &desc, int members) {
  back = desc.reduction;
  n = members;
  outer = desc.outer;
  experts = desc.extent2;
  reserve(desc, n);
  counts.assign(size_t(outer * n * experts), 0);
  next.assign(size_t(n), 0);
}

const char *RowCounts::take(const pcrt_move_desc &desc, int members, const int32_t *ofChunks, int64_t chunks) {
  begin(desc, members);
  int64_t *sums = counts.data();
  for (int64_t block = 0; block < outer * n; ++block, sums += experts)
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      for (int64_t expert = 0; expert < experts; ++expert)
        sums[expert] += *ofChunks++;
  return check(desc);
}

const char *RowCounts::count(const pcrt_move_desc &desc, int members) {
  begin(desc, members);
  const int64_t tokens = desc.extent / n * desc.middle; // the tokens of one block, by outer index
  const auto *mask = reinterpret_cast<const float *>(desc.codes);
  int64_t *sums = counts.data();
  for (int64_t block = 0; block < outer * n; ++block, sums += experts)
    for (int64_t token = 0; token < tokens; ++token, mask += experts)
      for (int64_t expert = 0; expert < experts; ++expert)
        sums[expert] += mask[expert] != 0;
  return check(desc);
}

const char *RowCounts::check(const pcrt_move_desc &desc) const {
  const int64_t mostOfTokens = mostRowsOfTokens(desc, n), mostOfExperts = mostRowsOfExperts(desc, n);
  for (int member = 0; member < n; ++member) {
    int64_t ofTokens = 0, ofExperts = 0;
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t expert = 0; expert < experts; ++expert) {
        ofTokens += of(o, member, expert);
        if (expert / (experts / n) == member)
          for (int other = 0; other < n; ++other)
            ofExperts += of(o, other, expert);
      }
    if (ofTokens > mostOfTokens || ofExperts > mostOfExperts)
      return "a token has more experts than the program allows";
  }
  return nullptr;
}

const std::vector<RowSegment> &RowCounts::segments(int me) {
  list.clear();
  std::fill(next.begin(), next.end(), 0);
  const int64_t width = n ? experts / n : 0; // experts of a member
  int64_t to = 0;
  auto add = [&](int source, int64_t count) {
    if (count)
      list.push_back({source, next[size_t(source)], to, count});
    to += count;
  };
  for (int64_t expert = 0; expert < experts; ++expert) {
    const int owner = int(expert / width);
    for (int64_t o = 0; o < outer; ++o)
      for (int member = 0; member < n; ++member) {
        // The member that has these rows, and the one that gets them.
        const int source = back ? owner : member, target = back ? member : owner;
        if (target == me)
          add(source, of(o, member, expert));
        next[size_t(source)] += of(o, member, expert);
      }
  }
  return list;
}

int64_t RowCounts::sent(int me) const {
  int64_t rows = 0;
  for (int64_t expert = 0; expert < experts; ++expert) {
    const int owner = int(expert / (experts / n));
    for (int64_t o = 0; o < outer; ++o)
      for (int member = 0; member < n; ++member) {
        const int source = back ? owner : member, target = back ? member : owner;
        rows += source == me && target != me ? of(o, member, expert) : 0;
      }
  }
  return rows;
}

const char *pcrt::pullRows(const pcrt_move_desc &desc, int n, int me, const char *const *ins, char *out,
                           const ParallelFor &parallelFor) {
  RowCounts &counts = rowCounts();
  if (const char *problem = counts.count(desc, n))
    return problem;
  const std::vector<RowSegment> &segments = counts.segments(me);
  if (segments.empty())
    return nullptr;
  const int64_t bytes = desc.inner * elementBytes(desc.dtype);
  parallelFor(segments.back().to + segments.back().count, [&](int64_t lo, int64_t hi) {
    auto segment = std::upper_bound(segments.begin(), segments.end(), lo,
                                    [](int64_t row, const RowSegment &one) { return row < one.to + one.count; });
    for (; segment != segments.end() && segment->to < hi; ++segment) {
      int64_t first = std::max(lo, segment->to), last = std::min(hi, segment->to + segment->count);
      memcpy(out + first * bytes, ins[segment->source] + (segment->from + first - segment->to) * bytes,
             size_t((last - first) * bytes));
    }
  });
  return nullptr;
}
