//===- Figures.h - A machine for pc-compile, of what was measured ---------===//
#ifndef PC_CALIBRATE_FIGURES_H
#define PC_CALIBRATE_FIGURES_H

#include "Measure.h"

#include <nlohmann/json.hpp>

namespace pc_calibrate {

using Json = nlohmann::ordered_json;

/// The machine as pc-compile reads it. What was not measured has the figures of the machine in `like`, and is named.
Json machineOf(const Measurements &results, int ranks, double spread);

} // namespace pc_calibrate

#endif // PC_CALIBRATE_FIGURES_H
