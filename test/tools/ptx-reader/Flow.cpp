//===- Flow.cpp - Where lanes that have diverged meet again ---------------===//
// The lanes of a warp that a branch separates run apart up to its immediate post-dominator, the first instruction that
// all of them reach. Computed as in Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001), on the
// reversed graph of instructions, whose root is the end of the kernel.
//===----------------------------------------------------------------------===//
#include "Program.h"

#include <algorithm>

using namespace pc::ptx;

/// The instructions that may come after instruction `i`; the number of instructions is the end.
static std::vector<int> successors(const std::vector<Instruction> &code, int i) {
  const Instruction &instruction = code[i];
  std::vector<int> all;
  if (instruction.flow == Instruction::Branch)
    all.push_back(instruction.target);
  if (instruction.flow == Instruction::Exit)
    all.push_back(int(code.size()));
  if (all.empty() || instruction.guard >= 0)
    all.push_back(i + 1);
  return all;
}

void pc::ptx::findJoins(Kernel &kernel) {
  int end = int(kernel.code.size());
  std::vector<std::vector<int>> after(end), before(end + 1);
  for (int i = 0; i < end; ++i) {
    after[i] = successors(kernel.code, i);
    for (int next : after[i])
      before[next].push_back(i);
  }
  // Numbers in postorder, from the end backwards.
  std::vector<int> number(end + 1, -1), order;
  std::vector<std::pair<int, size_t>> stack = {{end, 0}};
  std::vector<bool> seen(end + 1);
  seen[end] = true;
  while (!stack.empty()) {
    auto &[node, child] = stack.back();
    if (child == before[node].size()) {
      number[node] = int(order.size());
      order.push_back(node);
      stack.pop_back();
    } else if (int next = before[node][child++]; !seen[next]) {
      seen[next] = true;
      stack.push_back({next, 0});
    }
  }
  std::vector<int> join(end + 1, -1);
  join[end] = end;
  auto meet = [&](int a, int b) {
    while (a != b)
      (number[a] < number[b] ? a : b) = join[number[a] < number[b] ? a : b];
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto node = order.rbegin() + 1; node != order.rend(); ++node) {
      int found = -1;
      for (int next : after[*node])
        if (join[next] >= 0)
          found = found < 0 ? next : meet(found, next);
      changed |= join[*node] != found;
      join[*node] = found;
    }
  }
  for (int i = 0; i < end; ++i)
    kernel.code[i].join = join[i] < 0 ? end : join[i];
}
