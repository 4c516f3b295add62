//===- TaskKinds.h - Kinds of tasks, of schedules and in programs ---------------------------===//
// Schedules have letters (and no IR), programs have names, the runtime has C: one numbering, that of pcrt.h.
//===-----------------------------------------------------------------------------===//
#ifndef PC_LIB_PIPELINE_TASKKINDS_H
#define PC_LIB_PIPELINE_TASKKINDS_H

#include "pc/IR/PC.h"
#include "pc/Pipeline/Schedule.h"
#include "pcrt/pcrt.h"
#include <optional>

namespace pc::pipeline {

static_assert(int(TaskKind::Forward) == PCRT_FORWARD && int(Kind::F) == PCRT_FORWARD);
static_assert(int(TaskKind::Recompute) == PCRT_RECOMPUTE && int(Kind::R) == PCRT_RECOMPUTE);
static_assert(int(TaskKind::Backward) == PCRT_BACKWARD && int(Kind::B) == PCRT_BACKWARD);
static_assert(int(TaskKind::Weight) == PCRT_WEIGHT && int(Kind::W) == PCRT_WEIGHT);
static_assert(int(TaskKind::Optimizer) == PCRT_OPTIMIZER && numKinds == PCRT_OPTIMIZER);

/// What `pc.task` calls this kind.
constexpr TaskKind taskKind(Kind kind) { return static_cast<TaskKind>(kind); }

/// What schedules call this kind; nothing for what follows all tasks.
constexpr std::optional<Kind> kindOf(TaskKind kind) {
  return kind == TaskKind::Optimizer ? std::nullopt : std::optional(static_cast<Kind>(kind));
}

} // namespace pc::pipeline

#endif
