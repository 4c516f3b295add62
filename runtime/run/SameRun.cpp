//===- SameRun.cpp - Checks that all ranks run the same -------------------===//
// Ranks gather checksums of all facts; only if some differ do they gather the texts, for the message. The program's own
// sum is over its code and constants in memory.
//===----------------------------------------------------------------------===//
#include "run/SameRun.h"
#include "base/TensorSum.h"
#include "comm/Collective.h"

#include <algorithm>
#include <cstdio>
#include <link.h>

using namespace pcrt;

/// Copies memory that has redzones of AddressSanitizer between its constants, which instrumented code may not read.
__attribute__((no_sanitize("address"), no_builtin("memcpy"))) static std::vector<char> copyOf(const char *from,
                                                                                              size_t bytes) {
  std::vector<char> copy(bytes);
  char *to = copy.data();
  for (size_t i = 0; i < bytes; ++i)
    to[i] = from[i];
  return copy;
}

std::vector<SharedFact> pcrt::sharedFlagFacts(const Options &options) {
  std::vector<SharedFact> facts;
  for (auto &flags : {trajectoryFlags(options), sharedFlags(options)})
    for (const FlagValue &flag : flags)
      facts.push_back({"--" + flag.first, flag.second, ""});
  return facts;
}

std::string pcrt::otherSize(const Program &program, int size) {
  std::string ranks = std::to_string(program.mesh.ranks());
  if (program.mesh.ranks() == 1)
    return "the program is for one rank, but the run has " + std::to_string(size) + "; start it without a launcher";
  return "the program's mesh " + describeMesh(program.mesh) + " needs " + ranks + " ranks, but the run has " +
         std::to_string(size) + "; use pc-run -n " + ranks;
}

std::string pcrt::sumOfProgram() {
  TensorSum sum;
  // The first object is the program itself. Its read-only segments are as in its file.
  dl_iterate_phdr(
      [](dl_phdr_info *object, size_t, void *sum) {
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const ElfW(Phdr) &part = object->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_W))
            continue;
          std::vector<char> bytes =
              copyOf(reinterpret_cast<const char *>(object->dlpi_addr + part.p_vaddr), part.p_memsz);
          *static_cast<TensorSum *>(sum) += sumOfBytes(bytes.data(), int64_t(bytes.size()));
        }
        return 1;
      },
      &sum);
  return sum.text();
}

/// "0.001 on ranks 0, 2; 0.002 on rank 1".
static std::string describeFact(Comm &comm, const SharedFact &fact) {
  struct Shown {
    char text[128];
  };
  Shown mine{};
  snprintf(mine.text, sizeof mine.text, "%s", (fact.shown.empty() ? fact.value : fact.shown).c_str());
  std::vector<Shown> all(comm.size());
  requireOk(comm, comm.allGatherBytes(&mine, sizeof mine, all.data()));
  std::vector<std::pair<std::string, std::vector<int>>> groups; // ranks by value, in the order of the ranks
  for (int rank = 0; rank < comm.size(); ++rank) {
    std::string text = all[rank].text;
    auto group = std::find_if(groups.begin(), groups.end(), [&](auto &other) { return other.first == text; });
    if (group == groups.end())
      group = groups.insert(groups.end(), {text, {}});
    group->second.push_back(rank);
  }
  std::string text;
  for (auto &[value, ranks] : groups) {
    text += (text.empty() ? "" : "; ") + value + (ranks.size() > 1 ? " on ranks " : " on rank ");
    for (size_t i = 0; i < std::min<size_t>(ranks.size(), 8); ++i)
      text += (i ? ", " : "") + std::to_string(ranks[i]);
    if (ranks.size() > 8)
      text += " and " + std::to_string(ranks.size() - 8) + " more";
  }
  return text;
}

void pcrt::requireSame(Comm &comm, const std::vector<SharedFact> &facts) {
  if (comm.size() == 1)
    return;
  std::vector<TensorSum> mine, all(facts.size() * comm.size());
  for (const SharedFact &fact : facts)
    mine.push_back(sumOfBytes(fact.value.data(), int64_t(fact.value.size())));
  requireOk(comm, comm.allGatherBytes(mine.data(), int64_t(mine.size() * sizeof mine[0]), all.data()));
  std::string differences;
  for (size_t i = 0; i < facts.size(); ++i) {
    bool same = true;
    for (int rank = 1; rank < comm.size(); ++rank)
      same &= all[rank * facts.size() + i] == all[i];
    if (!same)
      differences += (differences.empty() ? "" : "; ") + facts[i].name + ": " + describeFact(comm, facts[i]);
  }
  if (!differences.empty())
    fail(PCRT_USAGE, "the ranks were started with different settings: " + differences);
}
