//===- TaskKinds.h - Kinds of tasks, of schedules and in programs ---------------------------===//
// Schedules have letters (and no IR), programs have names, the runtime has C: one numbering, that of pcrt.h.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_TASKKINDS_H
#define PC_LIB_PIPELINE_TASKKINDS_H

#include "pc/IR/PC.h"
#include "pc/Pipeline/Schedule.h"
#include <optional>

namespace pc::pipeline {

/// What `pc.task` calls this kind.
constexpr TaskKind taskKind(Kind kind) { return static_cast<TaskKind>(kind); }

/// What schedules call this kind; nothing for what follows all tasks.
constexpr std::optional<Kind> kindOf(TaskKind kind) {
  return kind == TaskKind::Optimizer ? std::nullopt : std::optional(static_cast<Kind>(kind));
}

} // namespace pc::pipeline

#endif
