//===- TaskKinds.h - Kinds of tasks, of schedules and in programs ---------------------------===//
#ifndef PC_LIB_PIPELINE_TASKKINDS_H
#define PC_LIB_PIPELINE_TASKKINDS_H

#include "pc/IR/PC.h"
#include "pc/Pipeline/Schedule.h"
#include "llvm/ADT/STLExtras.h"
#include <optional>

namespace pc::pipeline {

constexpr std::pair<Kind, TaskKind> taskKinds[] = {{Kind::F, TaskKind::Forward},
                                                   {Kind::R, TaskKind::Recompute},
                                                   {Kind::B, TaskKind::Backward},
                                                   {Kind::W, TaskKind::Weight}};
static_assert(std::size(taskKinds) == numKinds);

/// What `pc.task` calls this kind.
inline TaskKind taskKind(Kind kind) {
  return llvm::find_if(taskKinds, [&](const auto &pair) { return pair.first == kind; })->second;
}

/// What schedules call this kind; nothing for what follows all tasks.
inline std::optional<Kind> kindOf(TaskKind kind) {
  for (auto [scheduled, written] : taskKinds)
    if (written == kind)
      return scheduled;
  return std::nullopt;
}

} // namespace pc::pipeline

#endif
