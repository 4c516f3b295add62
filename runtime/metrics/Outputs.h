//===- Outputs.h - What a step shows --------------------------------------===//
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

class Outputs final : public Observer {
public:
  /// Makes the dump files; empty paths: none. All ranks call it. Throws PCRT_USAGE where the program does not show what
  /// is to be dumped, PCRT_RESOURCE where a file cannot be written.
  Outputs(const Program &program, Comm &comm, const std::string &gradsPath, const std::string &logitsPath);

  /// Choices of experts come from a file and go to one, in steps [firstStep, endStep); empty paths: none. All ranks
  /// call it. Throws as Routing does.
  void route(const std::string &from, const std::string &to, int64_t firstStep, int64_t endStep);

  bool wants(int index) const override;
  bool wantsInEveryStep() const override { return routing != nullptr; }
  pcrt_status observe(int index, int64_t microbatch, void *data, std::string *error) override;

  /// Before and after every step, or evaluation (which has no number). All ranks call them; afterwards all know loss
  /// and norm, also where the first rank of an axis alone computes them (naive data parallelism).
  void beginStep(std::optional<int64_t> step);
  /// `counted`: how many targets of each replica of local SGD count; one that has none has no loss either.
  void endStep(const std::vector<int64_t> &counted);
  /// After the last step. All ranks call it.
  void finish();
  /// After the first step: the files are complete. All ranks call it.
  void finishDumps();
  /// Why a dump could not be written, which was a warning; all ranks know.
  std::optional<Failure> lostDump() const;

  double loss() const { return lossSum; }
  std::optional<double> gradNorm() const { return norm; }

private:
  struct Dump {
    std::unique_ptr<SafetensorsWriter> writer;
    std::string path;
    OutputFile file; ///< Rank 0: what `writer` writes, until it is whole.
    std::optional<Failure> problem;
  };
  /// A tensor of the file.
  struct Piece {
    int64_t place = 0;
    Dims valid;
    Block block; ///< Of microbatch 0.
    Box box;
  };
  /// Where an output goes: into one tensor, or one for each part of a parameter.
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
  bool isStep = false; ///< What is shown is a step's.
  bool dumping = false;
  bool rooted = false; ///< Not all ranks get the loss and the norm, or not the same.
  bool sees = true;    ///< This rank gets them.
  double lossSum = 0;
  std::optional<double> norm;
};

} // namespace pcrt

#endif // PCRT_METRICS_OUTPUTS_H
