//===- Kernels.cpp - Measures kernels of compiled programs ----------------===//
// Writes a config.json of GPT-2 of some size, compiles it, trains with --trace, and groups the events of the trace by
// name.
//===----------------------------------------------------------------------===//
#include "Kernels.h"
#include "base/Failure.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace pcrt;
using namespace pc_calibrate;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

Folder::Folder() {
  std::string path =
      (fs::temp_directory_path() / "pc-calibrate-").string() + std::string(6, 'X'); // that mkdtemp replaces
  if (!mkdtemp(path.data()))
    fail(PCRT_RESOURCE, withErrno("cannot make a folder in " + fs::temp_directory_path().string()));
  at = path;
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(at, ignored);
}

namespace {

/// A GPT-2 of some size; a rank has `tokens` tokens in sequences of `length`.
struct Model {
  int64_t layers, width, heads, inner, tokens, length;
};

/// Calls of the traced step of all ranks.
struct Call {
  std::string name, kind;
  int64_t rank;
  double seconds;
};

} // namespace

static fs::path toolOf(const std::string &name) { return fs::canonical("/proc/self/exe").parent_path() / name; }

bool pc_calibrate::canTimeKernels() {
  for (const char *name : {"pc-import", "pc-compile", "pc-run"})
    if (!fs::exists(toolOf(name)))
      return false;
  return true;
}

/// Runs a tool in the folder of this program and discards its standard output.
static void run(const Folder &folder, std::vector<std::string> words) {
  fs::path tool = toolOf(words[0]), said = folder.at / "said";
  words[0] = tool.string();
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  int problem = posix_spawn(&child, tool.c_str(), &files, nullptr, arguments.data(), environ), status = 0;
  posix_spawn_file_actions_destroy(&files);
  if (problem)
    fail(PCRT_RESOURCE, tool.string() + ", which is needed to measure kernels, does not start");
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return;
  std::ifstream text(said);
  std::string last = "it printed no message";
  for (std::string line; std::getline(text, line);)
    if (!line.empty())
      last = line;
  fail(WIFEXITED(status) && WEXITSTATUS(status) == PCRT_TIMEOUT ? PCRT_TIMEOUT : PCRT_RESOURCE,
       "kernels cannot be measured: " + words[0] + ": " + last);
}

/// Compiles a model, and writes its report next to the program.
static void compile(const Folder &folder, const KernelsOn &on, const Model &model) {
  std::ofstream(folder.at / "config.json") << Json{{"model_type", "gpt2"},  {"activation_function", "gelu_new"},
                                                   {"vocab_size", 256},     {"n_positions", model.length},
                                                   {"n_embd", model.width}, {"n_layer", model.layers},
                                                   {"n_head", model.heads}, {"n_inner", model.inner},
                                                   {"attn_pdrop", 0.0},     {"embd_pdrop", 0.0},
                                                   {"resid_pdrop", 0.0}};
  std::string program = (folder.at / "model.mlir").string();
  run(folder, {"pc-import", folder.at.string(), "-o", program, "--batch",
               std::to_string(on.ranks * model.tokens / model.length), "--seq", std::to_string(model.length)});
  std::vector<std::string> words = {"pc-compile",
                                    program,
                                    "-o",
                                    (folder.at / "program").string(),
                                    "--verify=none",
                                    "--report=" + (folder.at / "report.json").string()};
  if (on.ranks > 1)
    words.push_back("--mesh=dp=" + std::to_string(on.ranks));
  if (!on.arch.empty())
    words.insert(words.end(), {"--target=cuda", "--arch=" + on.arch, "--precision=bf16"});
  if (on.isStandIn)
    words.push_back("--stand-in");
  run(folder, words);
}

/// Trains for some steps and returns the calls of the last one.
static std::vector<Call> train(const Folder &folder, const KernelsOn &on) {
  std::string text = (folder.at / "text").string(), trace = (folder.at / "trace.json").string();
  std::ofstream(text) << std::string(1 << 16, 'a');
  int steps = on.arch.empty() || on.isShort ? 4 : 40; // clocks fall under load
  run(folder, {"pc-run", "-n", std::to_string(on.ranks), (folder.at / "program").string(), "--", "--data",
               "text:" + text, "--steps", std::to_string(steps), "--lr", "1e-5", "--seed", "1", "--trace", trace});
  std::ifstream file(trace);
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  std::vector<Call> calls;
  for (const Json &event : json.is_object() ? json["traceEvents"] : Json::array())
    if (event["ph"] == "X")
      calls.push_back({event["name"], event["cat"], event["pid"], event["dur"].get<double>() * 1e-6});
  return calls;
}

/// The number of the layer to which a call, or its parameter, belongs; -1: none.
static int64_t layerOf(const std::string &name) {
  for (const char *before : {" h.", ".h."})
    if (size_t at = name.find(before); at != std::string::npos)
      return atoll(name.c_str() + at + 3);
  return -1;
}

/// Sums the seconds of the calls for which `counts` is true, by layer and rank; the sums of all layers measure the same
/// work.
template <typename F>
static Measurement sumByLayer(const std::string &name, double work, const std::vector<Call> &calls, F &&counts) {
  std::map<std::pair<int64_t, int64_t>, double> sums;
  for (const Call &call : calls)
    if (int64_t layer = layerOf(call.name); layer >= 0 && counts(call))
      sums[{call.rank, layer}] += call.seconds;
  std::vector<double> times;
  for (auto &[where, seconds] : sums)
    times.push_back(seconds);
  std::sort(times.begin(), times.end());
  size_t n = times.size();
  if (n == 0)
    fail(PCRT_INTERNAL, "the program used for measuring kernels has no kernel for '" + name + "'");
  Measurement sum{name, work, times[n / 2], 0};
  sum.spread = (times[n - 1 - n / 4] - times[n / 4]) / sum.seconds;
  return sum;
}

static AttentionTimes attentionOf(const KernelsOn &on, const Model &model, const std::vector<Call> &calls) {
  std::vector<Call> forward, backward; // the first call of a layer is the forward pass's
  std::set<std::pair<int64_t, int64_t>> seen;
  for (const Call &call : calls)
    if (call.kind == "attention")
      (seen.insert({call.rank, layerOf(call.name)}).second ? forward : backward).push_back(call);
  auto every = [](const Call &) { return true; };
  // Two products for the result, five for the gradient, of every query with every key.
  double product = 2. * double(model.tokens) * double(model.length) * double(model.width);
  std::string of =
      std::string(on.arch.empty() ? "f32" : "bf16") + " attention of " + std::to_string(model.length) + " tokens";
  return {model.length, model.width / model.heads, !on.arch.empty(), sumByLayer(of, 2 * product, forward, every),
          sumByLayer("gradient of " + of, 5 * product, backward, every)};
}

/// AdamW reads a parameter, its gradient and two states, and writes three of these.
static Measurement updateOf(const Model &model, const std::vector<Call> &calls) {
  int64_t matrices = 4 * model.width * model.width + 2 * model.width * model.inner,
          vectors = 9 * model.width + model.inner; // biases and norms
  return sumByLayer("update of a layer's parameters", 7. * 4 * double(matrices + vectors), calls,
                    [](const Call &call) { return call.kind == "optimizer"; });
}

/// All kernels of a device's step that are limited by memory; the report counts their bytes. The layers give the
/// spread.
static Measurement streamingOf(const Folder &folder, const std::vector<Call> &calls) {
  static const std::set<std::string> kinds = {"elementwise", "activation", "cast", "norm", "reduction"};
  auto streams = [](const Call &call) { return kinds.count(call.kind) > 0; };
  Measurement all = sumByLayer("norms, sums and activations of a step", 0, calls, streams);
  all.seconds = 0;
  for (const Call &call : calls)
    all.seconds += streams(call) ? call.seconds : 0;
  std::ifstream file(folder.at / "report.json");
  Json report = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  for (const Json &kernel : report.is_object() ? report["kernels"] : Json::array())
    if (kinds.count(kernel["kind"].get<std::string>()))
      all.work += kernel["read_bytes"].get<double>() + kernel["written_bytes"].get<double>();
  return all;
}

static Json toJson(const Measurement &one) {
  return {{"name", one.name}, {"work", one.work}, {"seconds", one.seconds}, {"spread", one.spread}};
}
static Measurement fromJson(const Json &json) { return {json["name"], json["work"], json["seconds"], json["spread"]}; }

void pc_calibrate::timeKernels(const KernelsOn &on, const std::string &path) {
  bool onDevice = !on.arch.empty();
  std::vector<Model> models = {{6, 512, 8, 128, 1024, 256}, {6, 512, 8, 128, 1024, 1024}};
  if (onDevice)
    models = {{4, 2048, 16, 8192, 8192, 1024}, {4, 2048, 16, 8192, 8192, 4096}};
  if (on.isShort)
    models = {{2, 32, 2, 64, 64, 16}, {2, 32, 2, 64, 64, 64}};
  Json all;
  for (const Model &model : models) {
    Folder folder;
    compile(folder, on, model);
    for (int tries = 0; tries < 3; ++tries) {
      std::vector<Call> calls = train(folder, on);
      AttentionTimes times = attentionOf(on, model, calls);
      Json entry = {{"keys", times.keys},
                    {"head_dim", times.headDim},
                    {"bf16", times.bf16},
                    {"forward", toJson(times.forward)},
                    {"backward", toJson(times.backward)}};
      double spread = std::max(times.forward.spread, times.backward.spread);
      if (onDevice) {
        Measurement streaming = streamingOf(folder, calls);
        spread = std::max(spread, streaming.spread);
        all["streaming"] = toJson(streaming);
      } else {
        Measurement update = updateOf(model, calls);
        spread = std::max(spread, update.spread);
        all["update"] = toJson(update);
      }
      all["attention"][size_t(&model - models.data())] = entry;
      if (spread <= on.noise)
        break;
    }
  }
  std::ofstream(path) << all;
}

void pc_calibrate::readKernels(const std::string &path, Measurements &results) {
  std::ifstream file(path);
  Json all = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object())
    fail(PCRT_INTERNAL, "cannot read " + path);
  for (const Json &entry : all["attention"])
    results.attention.push_back(
        {entry["keys"], entry["head_dim"], entry["bf16"], fromJson(entry["forward"]), fromJson(entry["backward"])});
  if (all.contains("streaming"))
    results.streaming = fromJson(all["streaming"]);
  if (all.contains("update"))
    results.update = fromJson(all["update"]);
}
