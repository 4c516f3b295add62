//===- Outputs.h - The outputs of a step ----------------------------------===//
// Collects the loss and the gradient norm of every step, and writes gradients and logits of the first one to
// safetensors files (global tensors under their Hugging Face names; every rank writes its own blocks).
//===----------------------------------------------------------------------===//
#ifndef PCRT_METRICS_OUTPUTS_H
#define PCRT_METRICS_OUTPUTS_H

#include "base/SafetensorsWriter.h"
#include "data/Routing.h"
#include "device/Context.h"
#include "pcrt/outputs.h"

#include <memory>
#include <optional>

namespace pcrt {

/// The observer of a run. Every rank has one and calls its methods in the same order. If a dump cannot be written
/// later, the run warns, and lostDump() returns the failure at the end.
class Outputs final : public Observer {
public:
  /// Creates the dump files; an empty path: there is none. All ranks call it. Throws PCRT_USAGE if the program lacks
  /// the output that is to be dumped, PCRT_RESOURCE if a file cannot be written.
  Outputs(const Program &program, Comm &comm, const std::string &gradsPath, const std::string &logitsPath);

  /// Reads and writes choices of experts in steps [firstStep, endStep); an empty path: there is none. All ranks call
  /// it. Throws like Routing.
  void route(const std::string &from, const std::string &to, int64_t firstStep, int64_t endStep);

  bool wants(int index) const override;
  bool wantsInEveryStep() const override { return routing != nullptr; }
  pcrt_status observe(int index, int64_t microbatch, void *data, std::string *error) override;

  /// Call beginStep before and endStep after every step or evaluation (which has no number), on all ranks. Afterwards
  /// all ranks know loss and norm, even if only the first rank of an axis computes them (naive data parallelism).
  void beginStep(std::optional<int64_t> step);
  /// `counted` is the number of targets that count, by replica of local SGD; a replica that has none has no loss.
  void endStep(const std::vector<int64_t> &counted);
  /// Call it after the last step, on all ranks.
  void finish();
  /// Completes the dump files. Call it after the first step, on all ranks.
  void finishDumps();
  /// Set on all ranks if a dump could not be written, which was a warning.
  std::optional<Failure> lostDump() const;

  double loss() const { return lossSum; }
  std::optional<double> gradNorm() const { return norm; }

private:
  /// A file of tensors in progress. A failure is kept in `problem` until all ranks learn of it.
  struct Dump {
    std::unique_ptr<SafetensorsWriter> writer;
    std::string path;
    OutputFile file; ///< Rank 0: the temporary file that `writer` writes.
    std::optional<Failure> problem;
  };
  /// A tensor of the file.
  struct Piece {
    int64_t place = 0;
    Dims valid;
    Block block; ///< The block of microbatch 0.
    Box box;
  };
  /// The tensors of an output in a file: one, or one for each part of a parameter.
  struct Target {
    Dump *dump = nullptr;
    std::vector<Piece> pieces;
  };

  pcrt_status writeLogits(const SafetensorsWriter &writer, const Output &output, Piece &piece, int64_t microbatch,
                          const void *data) const;
  void shareFigures(const std::vector<int64_t> &counted);
  std::string openDump(Dump &dump);
  void makeDump(Dump &dump, const std::string &kind, const std::string &path);

  const Program &program;
  Comm &comm;
  Dump grads, logits;
  std::vector<Target> targets; ///< By output.
  std::unique_ptr<Routing> routing;
  bool isStep = false; ///< True between beginStep and endStep of a step; false in an evaluation.
  bool dumping = false;
  bool rooted = false; ///< Some ranks get no loss and norm from the step, or different ones.
  bool sees = true;    ///< This rank gets them from the step.
  double lossSum = 0;
  std::optional<double> norm;
};

} // namespace pcrt

#endif // PCRT_METRICS_OUTPUTS_H
