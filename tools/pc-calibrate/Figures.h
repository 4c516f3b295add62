//===- Figures.h - Turns measurements into a machine for pc-compile -------===//
// Computes the JSON file that --machine reads from measurements.
//===----------------------------------------------------------------------===//
#ifndef PC_CALIBRATE_FIGURES_H
#define PC_CALIBRATE_FIGURES_H

#include "Measure.h"

#include <nlohmann/json.hpp>

namespace pc_calibrate {

using Json = nlohmann::ordered_json;

/// The machine in the form that pc-compile reads. Figures that were not measured come from a known machine, which the
/// file names as `like`.
Json machineOf(const Measurements &results, int ranks, double spread);

} // namespace pc_calibrate

#endif // PC_CALIBRATE_FIGURES_H
