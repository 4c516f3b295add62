//===- Routing.h - Choices of experts in files ----------------------------===//
// A file of choices has the experts of each token, in each layer of a mixture and at every step. The file does not
// depend on the mesh or on the plan. It is a safetensors file with one tensor "routing" [steps, layers, batch,
// sequence, experts of a token]. A run writes the file from front to back, and rewrites its header after every step.
//===----------------------------------------------------------------------===//
#ifndef PCRT_DATA_ROUTING_H
#define PCRT_DATA_ROUTING_H

#include "base/Failure.h"
#include "base/Program.h"
#include "base/Safetensors.h"
#include "comm/Comm.h"

#include <memory>
#include <optional>

namespace pcrt {

/// Reads and writes the choices of one run. Every rank has one Routing and calls its methods in the same order; each
/// rank writes its own tokens. If the file cannot be written, it ends there, and the run continues without it.
class Routing {
public:
  /// Choices are read from the file `from` and written to the file `to`; if a name is empty, there is no such file. The
  /// run makes steps [firstStep, endStep). All ranks call the constructor. Throws PCRT_USAGE if the program has no such
  /// layers, PCRT_BAD_DATA if `from` is of another model or run, and PCRT_RESOURCE if `to` cannot be written. If `to`
  /// is a file of the same model that reaches to the first step, the run continues it.
  Routing(const Program &program, Comm &comm, const std::string &from, const std::string &to, int64_t firstStep,
          int64_t endStep);
  ~Routing();
  Routing(const Routing &) = delete;
  Routing &operator=(const Routing &) = delete;

  /// Call this before the calls of observe for this step.
  void beginStep(int64_t number) { step = number; }
  /// Call this after all layers of the step have been observed. All ranks call it.
  void endStep();
  /// Syncs the file to the disk after the last step. All ranks call it.
  void finish();
  /// Set on all ranks if the file ends before the last step; the steps in it are complete.
  const std::optional<Failure> &failure() const { return problem; }

  /// Call this for output `index`, which is a routing. Replaces `mask`, f32 [rows, positions, experts], by the choice
  /// in the file `from`, and writes the choice in `mask` to the file `to`. Allocates nothing unless it fails.
  pcrt_status observe(int index, int64_t microbatch, float *mask, std::string *error);

private:
  /// This rank's part of a layer.
  struct Layer {
    int64_t place = 0; ///< Index among the layers of the file.
    Block block;       ///< The block of microbatch 0: rows, positions, experts.
    bool writes = false;
  };

  void openSource(const std::string &path, int64_t endStep);
  void openTarget();
  std::string header(int64_t steps) const;
  int64_t headerBytes() const;
  std::string layerList() const;
  int64_t choicesOfStep() const;
  int64_t stepsBefore();
  void writeHeader(int64_t steps);
  template <typename F> void attempt(F f);
  void shareProblem();
  int64_t choiceAt(int64_t steps, const Layer &layer, int64_t row, int64_t position) const;
  template <typename F> void forEachRun(const Layer &layer, int64_t microbatch, F f) const;
  void take(const Layer &layer, int64_t microbatch, float *mask);
  void write(const Layer &layer, int64_t microbatch, const float *mask);

  const Program &program;
  Comm &comm;
  int64_t experts = 0, chosen = 0; ///< Experts of a layer, and experts that a token has.
  std::vector<int64_t> numbers;    ///< The model's numbers of the layers in the file.
  std::vector<Layer> layers;       ///< One for each output of the program.
  std::string modelSum;
  int64_t firstStep, step = 0;
  std::optional<Safetensors> source;
  const StoredTensor *stored = nullptr; ///< The tensor of the file.
  int64_t sourceFirst = 0, sourceWidth = 0;
  std::string targetPath;
  int target = -1; ///< Descriptor; -1: there is no file, or it has ended.
  std::optional<Failure> problem;
  int64_t targetFirst = 0, targetWidth = 0;
  std::vector<unsigned char> buffer; ///< Choices of one output, as in a file.
};

} // namespace pcrt

#endif // PCRT_DATA_ROUTING_H
