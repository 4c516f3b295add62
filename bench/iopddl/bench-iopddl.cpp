//===- bench-iopddl.cpp - The placement solver on a graph of the contest --===//
// usage: bench-iopddl GRAPH.json [--rounds=N] [--seconds=S] [--table=ENTRIES]
//
// Prints the strategies as the contest's programs do, [1, 0, ...], on standard output, and on standard error the cost,
// a bound that no choice is below, and the time. Exit code 6 where none was found within the limit.
//===----------------------------------------------------------------------===//
#include "Search.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>

using namespace llvm;

static cl::opt<std::string> file(cl::Positional, cl::Required, cl::desc("GRAPH.json"));
static cl::opt<unsigned> rounds("rounds", cl::init(2000), cl::desc("parts of the graph that are solved, at most"));
static cl::opt<double> seconds("seconds", cl::init(0), cl::desc("end after so many; 0: after the rounds"));
static cl::opt<unsigned> table("table", cl::init(1 << 20), cl::desc("entries of a table, at most"));

static std::string text(__int128 number) {
  std::string digits;
  for (; number > 9; number /= 10)
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(number % 10)));
  digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(number)));
  return digits;
}

int main(int argc, char **argv) {
  cl::ParseCommandLineOptions(argc, argv, "The placement solver on a graph of the IOPDDL contest\n");
  auto start = std::chrono::steady_clock::now();
  Expected<iopddl::Graph> graph = iopddl::readGraph(file);
  if (!graph) {
    errs() << toString(graph.takeError()) << "\n";
    return 3;
  }
  iopddl::Found found = iopddl::search(*graph, {rounds, seconds, table});
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  errs() << graph->name << ": " << graph->nodes.size() << " nodes, " << graph->edges.size() << " edges, "
         << (found.isExact ? "solved as a whole" : "too wide as a whole") << "; " << found.rounds << " rounds, "
         << format("%.1f s", took.count()) << "; ";
  if (!found.choice) {
    errs() << "none found within the limit; bound " << text(found.bound) << "\n";
    return 6;
  }
  double gap = found.cost > found.bound ? 1 - static_cast<double>(found.bound) / static_cast<double>(found.cost) : 0;
  errs() << "cost " << text(found.cost) << ", bound " << text(found.bound) << ", gap " << format("%.2f %%", 100 * gap)
         << "\n";
  outs() << "[";
  ListSeparator comma;
  for (unsigned strategy : *found.choice)
    outs() << comma << strategy;
  outs() << "]\n";
  return 0;
}
