//===- pc-compare.cpp - Compares the outputs of two runs ------------------===//
// Compares safetensors, metrics, and reports with summaries, for the end-to-end tests and the demo. Exit codes: 0
// equal, 2 usage, 5 different, 9 unreadable.
//===----------------------------------------------------------------------===//

#include "Tensors.h"
#include "pcrt/version.h"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

using Json = nlohmann::json;

namespace {

Json parse(const std::string &text, const std::string &path) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    die(Unreadable, path + " is not JSON");
  return json;
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// A range of entries that is not compared: [begin, end) of the tensors whose names match.
struct Skip {
  std::regex name;
  size_t begin = 0, end = SIZE_MAX;
};

/// max|want - got| / max|want| over the entries that count; infinite if a value is not finite.
double relativeDifference(const std::string &name, const FileTensor &want, const FileTensor &got,
                          const std::vector<Skip> &skips) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < want.values.size(); ++i) {
    bool skipped = std::any_of(skips.begin(), skips.end(), [&](const Skip &skip) {
      return i >= skip.begin && i < skip.end && std::regex_search(name, skip.name);
    });
    largest = std::max(largest, std::fabs(double(want.values[i])));
    if (skipped)
      continue;
    double here = std::fabs(double(want.values[i]) - got.values[i]);
    if (!std::isfinite(here))
      return INFINITY;
    difference = std::max(difference, here);
  }
  return difference == 0 ? 0 : difference / largest;
}

double rmsDifference(const FileTensor &a, const FileTensor *b) {
  double sum = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    double difference = double(a.values[i]) - (b ? b->values[i] : 0);
    sum += difference * difference;
  }
  return std::sqrt(sum / double(a.values.size()));
}

/// The root mean square distance of `got` from `want`. It is divided by the distance of `rounded`, or by `floor` times
/// `want` if that is larger. Infinite if a value is not finite.
double distanceOverRounding(const FileTensor &want, const FileTensor &rounded, const FileTensor &got, double floor) {
  double rounding = std::max(rmsDifference(want, &rounded), floor * rmsDifference(want, nullptr));
  double distance = rmsDifference(want, &got);
  return distance == 0 ? 0 : std::isfinite(distance) ? distance / rounding : INFINITY;
}

/// The largest allowed distance from exact values, as a multiple of the distance of another tensor with the same amount
/// of rounding.
constexpr double allowedRounding = 4;

/// Compares the tensors of `want` whose names begin with the prefix with the tensors of the same names without it, both
/// ways. If `only` is not empty, it is the one tensor that counts. If `roundedPath` is not empty, it is the output of
/// another run whose values are rounded in the same way as `got`. Distances from `want` are then measured in units of
/// that run's distance, with `tolerance` as the floor.
int compareTensors(const std::string &wantPath, const std::string &gotPath, const std::string &roundedPath,
                   double tolerance, const std::string &prefix, const std::string &only,
                   const std::vector<Skip> &skips) {
  auto want = readTensors(wantPath), got = readTensors(gotPath);
  bool rounds = !roundedPath.empty();
  std::map<std::string, FileTensor> rounded;
  if (rounds)
    rounded = readTensors(roundedPath);
  double worst = 0;
  std::string worstName;
  int compared = 0, bad = 0;
  auto complain = [&](const std::string &message) {
    printf("%s\n", message.c_str());
    ++bad;
  };
  for (auto &[fullName, tensor] : want) {
    if (fullName.compare(0, prefix.size(), prefix) != 0 || (!only.empty() && fullName != only))
      continue;
    std::string name = fullName.substr(prefix.size());
    ++compared;
    auto found = got.find(name);
    if (found == got.end()) {
      complain(name + " is missing");
      continue;
    }
    if (found->second.shape != tensor.shape) {
      complain(name + " has shape " + Json(found->second.shape).dump() + ", not " + Json(tensor.shape).dump());
      continue;
    }
    if (rounds && (!rounded.count(name) || rounded[name].shape != tensor.shape)) {
      complain(name + " is not in " + roundedPath + ", or has a different shape there");
      continue;
    }
    double relative = rounds ? distanceOverRounding(tensor, rounded[name], found->second, tolerance)
                             : relativeDifference(name, tensor, found->second, skips);
    if (!(relative <= (rounds ? allowedRounding : tolerance))) {
      char text[96];
      snprintf(text, sizeof text, rounds ? " differs %.2f times as much as the other rounded run" : " differs by %.2e",
               relative);
      complain(name + text);
    }
    if (relative >= worst) {
      worst = relative;
      worstName = name;
    }
  }
  // If the wanted file holds several groups, names of other groups are ignored, but a name that no group has is an
  // error.
  for (auto &[name, tensor] : got)
    if (!want.count(prefix + name))
      complain(name + " was not expected");
  printf(rounds ? "%d tensors, differing at most %.2f times as much as the other rounded run, in %s\n"
                : "%d tensors, largest difference %.2e in %s\n",
         compared, worst, worstName.c_str());
  return bad || !compared ? Different : Equal;
}

//===----------------------------------------------------------------------===//
// Metrics
//===----------------------------------------------------------------------===//

/// The lines of a metrics file. Each must have every field that the runtime promises.
std::vector<Json> readMetrics(const std::string &path) {
  std::istringstream text(readFile(path));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) {
    Json json = parse(line, path);
    if (json.contains("validation_loss")) // between steps
      continue;
    for (const char *field : {"step", "loss", "grad_norm", "lr", "tokens", "step_seconds", "tokens_per_second"})
      if (!json.contains(field) || !json[field].is_number())
        die(Different, path + ": line " + std::to_string(lines.size() + 1) + " has no number '" + field + "'");
    if (!lines.empty() && json["step"].get<int64_t>() != lines.back()["step"].get<int64_t>() + 1)
      die(Different, path + ": steps are not consecutive at line " + std::to_string(lines.size() + 1));
    lines.push_back(json);
  }
  return lines;
}

/// The losses of a metrics file, or of a tensor: FILE.safetensors:NAME.
std::vector<double> readLosses(const std::string &path) {
  size_t colon = path.rfind(".safetensors:");
  if (colon != std::string::npos) {
    auto tensors = readTensors(path.substr(0, colon + 12));
    auto found = tensors.find(path.substr(colon + 13));
    if (found == tensors.end())
      die(Unreadable, "there is no such tensor: " + path);
    return {found->second.values.begin(), found->second.values.end()};
  }
  std::vector<double> losses;
  for (const Json &line : readMetrics(path))
    losses.push_back(line["loss"]);
  return losses;
}

/// The largest relative difference of the first `count` losses; infinite if one is not finite.
double lossDifference(const std::vector<double> &a, const std::vector<double> &b, size_t count) {
  double worst = 0;
  for (size_t i = 0; i < std::min(count, a.size()); ++i) {
    double relative = std::fabs(a[i] - b[i]) / std::fabs(a[i]);
    if (!std::isfinite(relative))
      return INFINITY;
    worst = std::max(worst, relative);
  }
  return worst;
}

/// Compares two loss curves. If `roundedPath` is not empty, it is a run whose values are rounded in the same way as
/// those of `bPath`. Distances from `aPath` are then measured in units of that run's distance, with `tolerance` as the
/// floor.
int compareLosses(const std::string &aPath, const std::string &bPath, const std::string &roundedPath, double tolerance,
                  size_t first) {
  std::vector<double> a = readLosses(aPath), b = readLosses(bPath);
  bool enough = first == SIZE_MAX ? a.size() == b.size() : std::min(a.size(), b.size()) >= first;
  if (a.empty() || !enough) {
    printf("%zu losses against %zu\n", a.size(), b.size());
    return Different;
  }
  double worst = lossDifference(a, b, first), allowed = tolerance;
  printf("%zu losses, largest relative difference %.2e\n", std::min(first, a.size()), worst);
  if (!roundedPath.empty()) {
    double rounding = lossDifference(a, readLosses(roundedPath), first);
    printf("%.2e of the other rounded run\n", rounding);
    allowed = std::max(tolerance, allowedRounding * rounding);
  }
  return worst <= allowed ? Equal : Different;
}

/// Draws the loss curves of several runs, each with its own mark ('x' where two overlap), from the first step to the
/// last one of the longest run. For each run after the first it prints the largest differences from the first one.
int drawCurves(const std::vector<std::string> &paths) {
  const std::string marks = "*o+#@%&=";
  const int rows = 16, columns = 100;
  if (paths.size() > marks.size())
    die(Usage, "pc-compare curves draws at most " + std::to_string(marks.size()) + " runs");
  std::vector<std::vector<double>> runs;
  double low = INFINITY, high = -INFINITY;
  size_t longest = 0;
  for (const std::string &path : paths) {
    runs.push_back(readLosses(path));
    if (runs.back().empty())
      die(Different, path + " has no losses");
    longest = std::max(longest, runs.back().size());
    for (double loss : runs.back()) {
      if (!std::isfinite(loss))
        die(Different, path + " has a loss that is not finite");
      low = std::min(low, loss);
      high = std::max(high, loss);
    }
  }
  size_t width = std::min<size_t>(columns, longest);
  std::vector<std::string> canvas(rows, std::string(width, ' '));
  for (size_t run = 0; run < runs.size(); ++run)
    for (size_t x = 0; x < width && x * longest / width < runs[run].size(); ++x) {
      double loss = runs[run][x * longest / width];
      int y = high > low ? int(std::lround((high - loss) / (high - low) * (rows - 1))) : 0;
      canvas[y][x] = canvas[y][x] == ' ' ? marks[run] : 'x';
    }
  for (int y = 0; y < rows; ++y)
    printf("%8.4f |%s\n", high - (high - low) * y / (rows - 1), canvas[y].c_str());
  printf("%8s +%s\n%10s%zu steps;", "loss", std::string(width, '-').c_str(), "", longest);
  for (size_t run = 0; run < runs.size(); ++run)
    printf(" %c %s,", marks[run], paths[run].c_str());
  printf(" x several\n");
  for (size_t run = 1; run < runs.size(); ++run) {
    size_t count = std::min(runs[0].size(), runs[run].size());
    std::vector<double> first(runs[0].begin(), runs[0].begin() + count);
    printf("%s: largest relative difference: first 20 steps %.2e, all %zu steps %.2e\n", paths[run].c_str(),
           lossDifference(first, runs[run], 20), count, lossDifference(first, runs[run], count));
  }
  return Equal;
}

//===----------------------------------------------------------------------===//
// Report against summary
//===----------------------------------------------------------------------===//

/// One rank's exact figures: its traffic (by axis, move and phase) and its arena; of a program that generates also its
/// weights and caches.
struct RankFigures {
  std::map<std::string, std::vector<int64_t>> traffic; // count, payload bytes, wire bytes
  Json arena, weights, caches;
};

/// True if this is a build with AddressSanitizer, whose shadow and quarantine make peaks meaningless.
#if defined(__has_feature)
constexpr bool sanitized = __has_feature(address_sanitizer);
#else
constexpr bool sanitized = false;
#endif

std::map<int64_t, RankFigures> rankFigures(const Json &report, const std::string &path) {
  std::map<int64_t, RankFigures> figures;
  if (!report.contains("per_rank"))
    die(Different, path + " has no per_rank");
  for (const Json &group : report["per_rank"])
    for (int64_t rank : group.at("ranks")) {
      RankFigures &of = figures[rank];
      of.arena = group.at("arena_bytes");
      of.weights = group.value("weights", Json());
      of.caches = group.value("memory", Json::object()).value("caches", Json(0));
      for (const Json &entry : group.at("traffic")) {
        const Json &over = entry.at(entry.contains("link") ? "link" : "axis");
        std::string axis = over.is_string() ? over.get<std::string>() : over.dump();
        std::string key = axis + " " + entry.at("move").get<std::string>() + " " + entry.at("phase").get<std::string>();
        auto &sums = of.traffic.try_emplace(key, 3, 0).first->second;
        sums[0] += entry.at("count").get<int64_t>();
        sums[1] += entry.at("payload_bytes").get<int64_t>();
        sums[2] += entry.at("wire_bytes").get<int64_t>();
      }
    }
  return figures;
}

/// Prints predicted next to counted figures of every group of equal ranks, and figures that only one side has.
void printTable(const std::vector<std::pair<std::string, std::string>> &blocks, const Json &report,
                const Json &summary) {
  for (auto &[ranks, lines] : blocks) {
    printf("rank %s\n  %-34s %7s %7s  %13s %13s  %13s %13s\n", ranks.c_str(), "axis, move, phase: each step", "count",
           "counted", "payload bytes", "counted", "wire bytes", "counted");
    printf("%s", lines.c_str());
  }
  for (const Json &group : report["per_rank"]) {
    printf("predicted contents of the device arena of rank %s:\n", group["ranks"].dump().c_str());
    Json memory = group.value("memory", Json::object());
    for (auto &[kind, bytes] : memory.items())
      printf("  %-34s %31ld\n", kind.c_str(), bytes.get<int64_t>());
  }
  for (const Json &group : summary.value("per_rank", Json::array()))
    if (group.contains("rows"))
      printf("rows of a layer's experts on rank %s: %s\n", group["ranks"].dump().c_str(), group["rows"].dump().c_str());
  if (summary.contains("time_by_kind")) {
    double total = 0;
    for (auto &[kind, seconds] : summary["time_by_kind"].items())
      total += seconds.get<double>();
    printf("where the time went on rank 0:\n");
    for (auto &[kind, seconds] : summary["time_by_kind"].items())
      printf("  %-34s %6.2f s %5.1f %%\n", kind.c_str(), seconds.get<double>(), 100 * seconds.get<double>() / total);
  }
  printf("peak resident bytes %s, heap allocations inside steps %s\n",
         summary.value("peak_rss_bytes", Json()).dump().c_str(),
         summary.value("step_allocations", Json()).dump().c_str());
}

/// Compares predicted with counted figures. Everything must be equal except the bytes of rows that tokens choose, and
/// no step may allocate (except over tcp or mpi).
int compareReports(const std::string &reportPath, const std::string &summaryPath, bool table) {
  Json report = parse(readFile(reportPath), reportPath), summary = parse(readFile(summaryPath), summaryPath);
  auto predicted = rankFigures(report, reportPath), counted = rankFigures(summary, summaryPath);
  int bad = 0;
  auto complain = [&](const std::string &message) {
    printf("%s\n", message.c_str());
    ++bad;
  };
  if (predicted.empty() || predicted.size() != counted.size())
    complain(std::to_string(predicted.size()) + " ranks predicted, " + std::to_string(counted.size()) + " counted");
  std::vector<std::pair<std::string, std::string>> blocks; // ranks, and the lines that they share
  for (auto &[rank, want] : predicted) {
    const RankFigures &got = counted[rank];
    std::map<std::string, std::pair<std::vector<int64_t>, std::vector<int64_t>>> rows;
    for (auto &[key, sums] : want.traffic)
      rows[key].first = sums;
    for (auto &[key, sums] : got.traffic)
      rows[key].second = sums;
    std::string lines;
    char line[256];
    for (auto &[key, row] : rows) {
      auto &[p, c] = row;
      p.resize(3);
      c.resize(3);
      snprintf(line, sizeof line, "  %-34s %7ld %7ld  %13ld %13ld  %13ld %13ld\n", key.c_str(), p[0], c[0], p[1], c[1],
               p[2], c[2]);
      lines += line;
      // The number of rows that are sent depends on the tokens' choices; the prediction assumes that all experts are
      // chosen equally often.
      if (key.find(" all_to_all_rows ") != std::string::npos && c[2] >= 0 && c[2] <= c[1])
        p[2] = c[2];
      if (p != c)
        complain("rank " + std::to_string(rank) + " " + key + ": predicted " + Json(p).dump() + ", counted " +
                 Json(c).dump());
    }
    for (auto &[kind, bytes] : want.arena.items()) {
      snprintf(line, sizeof line, "  %-34s %7s %7s  %13ld %13ld\n", ("arena, " + kind).c_str(), "", "",
               bytes.get<int64_t>(), got.arena.is_object() ? got.arena.value(kind, int64_t(-1)) : -1);
      lines += line;
    }
    for (auto [what, field] : {std::pair("arena", &RankFigures::arena),
                               {"weights", &RankFigures::weights},
                               {"caches", &RankFigures::caches}})
      if (want.*field != got.*field)
        complain("rank " + std::to_string(rank) + ": " + what + ": predicted " + (want.*field).dump() + ", counted " +
                 (got.*field).dump());
    auto same = std::find_if(blocks.begin(), blocks.end(), [&](auto &block) { return block.second == lines; });
    if (same == blocks.end())
      blocks.push_back({std::to_string(rank), lines});
    else
      same->first += ", " + std::to_string(rank);
  }
  if (table)
    printTable(blocks, report, summary);
  // The tcp transport allocates messages on the heap, and so does an MPI library.
  std::string transport = summary.value("transport", "");
  bool allocates = transport == "tcp" || transport == "mpi";
  if (!summary.contains("step_allocations") || (summary["step_allocations"] != 0 && !allocates))
    complain("step_allocations is " + summary.value("step_allocations", Json()).dump() + ", not 0");
  int64_t arena = 0;
  for (auto &[rank, want] : predicted)
    for (auto &[kind, bytes] : want.arena.items())
      arena = std::max(arena, bytes.get<int64_t>());
  // A device's memory is mapped in granules; the other host memory belongs to the driver.
  if (summary.contains("device")) {
    int64_t mapped = summary["device"].value("arena_bytes", int64_t(0));
    if (mapped < arena || mapped >= arena + (int64_t(2) << 20))
      complain("the device has an arena of " + std::to_string(mapped) + " bytes, predicted " + std::to_string(arena));
  }
  // The staging memory of NCCL's moves is counted if moves use NCCL; a stage may need less than the maximum.
  if (report.contains("beside_arena") && summary.contains("device") && summary["device"].contains("staging_bytes"))
    for (const char *figure : {"communicators", "staging_bytes"}) {
      int64_t want = report["beside_arena"].value(figure, int64_t(-1)),
              got = summary["device"].value(figure, int64_t(-1));
      if (report.contains("pipeline") ? got > want : got != want)
        complain(std::string(figure) + " outside the arena: predicted " + std::to_string(want) + ", counted " +
                 std::to_string(got));
    }
  // The summary has one number for all ranks, or one per rank.
  Json peaks = summary.value("peak_rss_bytes", Json());
  if (peaks.is_number())
    peaks = Json::array({peaks});
  if (!peaks.is_array() || peaks.empty())
    complain("the summary has no peak_rss_bytes");
  else
    for (const Json &peak : peaks) {
      // Weights are mapped from the checkpoint: at most all of them, in f32.
      int64_t limit = arena + 4 * report.value("parameters", int64_t(0)) + (int64_t(64) << 20);
      if (!sanitized && !summary.contains("device") && peak.get<int64_t>() > limit)
        complain("peak resident " + peak.dump() +
                 " bytes, more than arena + weights + 64 MiB = " + std::to_string(limit));
    }
  if (!bad)
    printf("report equals summary for %zu ranks\n", predicted.size());
  return bad ? Different : Equal;
}

const char *usage =
    R"(usage: pc-compare tensors WANT GOT [--tolerance X] [--prefix P] [--only NAME] [--skip REGEX[:BEGIN:END]]... [--rounded FILE]
       pc-compare losses A B [--tolerance X] [--first N] [--rounded FILE]     (metrics, or FILE.safetensors:NAME)
       pc-compare curves A B...                              (draws metrics files)
       pc-compare reports REPORT SUMMARY [--table]           (pc-compile --report, pc-run --summary)

Compares tensors or losses of two runs, or a report with the summary of a run; curves only draws. Exit codes: 0 equal,
2 usage, 5 different, 9 unreadable.
)";

} // namespace

int main(int argc, char **argv) {
  std::vector<std::string> positional;
  std::vector<Skip> skips;
  double tolerance = 0;
  std::string prefix, only, rounded;
  size_t first = SIZE_MAX;
  bool table = false;
  if (argc == 2 && !strcmp(argv[1], "--version"))
    return printf("pc-compare %s\n", pcrt_version) < 0;
  if (argc == 2 && !strcmp(argv[1], "--help"))
    return fputs(usage, stdout) < 0;
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    if (arg.compare(0, 2, "--") != 0) {
      positional.push_back(arg);
      continue;
    }
    if (arg == "--table") {
      table = true;
      continue;
    }
    if (++i == argc)
      die(Usage, arg + " needs a value\n" + usage);
    std::string value = argv[i];
    if (arg == "--tolerance") {
      tolerance = atof(value.c_str());
    } else if (arg == "--prefix") {
      prefix = value;
    } else if (arg == "--only") {
      only = value;
    } else if (arg == "--rounded") {
      rounded = value;
    } else if (arg == "--first") {
      first = strtoull(value.c_str(), nullptr, 10);
    } else if (arg == "--skip") {
      std::smatch parts;
      static const std::regex form("(.*):([0-9]+):([0-9]+)");
      if (std::regex_match(value, parts, form))
        skips.push_back({std::regex(parts[1].str()), std::stoul(parts[2]), std::stoul(parts[3])});
      else
        skips.push_back({std::regex(value)});
    } else {
      die(Usage, "unknown option " + arg + "\n" + usage);
    }
  }
  if (positional.size() > 1 && positional[0] == "curves")
    return drawCurves({positional.begin() + 1, positional.end()});
  if (positional.size() != 3)
    die(Usage, usage);
  const std::string &a = positional[1], &b = positional[2];
  if (positional[0] == "tensors")
    return compareTensors(a, b, rounded, tolerance, prefix, only, skips);
  if (positional[0] == "losses")
    return compareLosses(a, b, rounded, tolerance, first);
  if (positional[0] == "reports")
    return compareReports(a, b, table);
  die(Usage, usage);
}
