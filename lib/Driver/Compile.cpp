//===- Compile.cpp - From a model program to an executable ---------------------------------===//
// compile() runs a module of phase `from` through all later phases up to `options.to`, and writes the program of that
// phase or an executable. The given module is verified; every later phase runs its passes. With --verify=full, the
// phases from step to planned are proved against the step program, and the tables of the kernels are read back. The
// report is made from the planned program before kernels are generated; at this point a plan over the memory limit is
// refused.
//===-----------------------------------------------------------------------------===//
#include "pc/Driver/Compile.h"

#include "BlamePass.h"
#include "Certificate.h"
#include "CompareKernels.h"
#include "Remarks.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/Timing.h"
#include "pc/Autodiff/Optimizers.h"
#include "pc/Codegen/Codegen.h"
#include "pc/Codegen/KernelReport.h"
#include "pc/Cost/Report.h"
#include "pc/Cost/Simulate.h"
#include "pc/Cost/Streams.h"
#include "pc/Driver/Origin.h"
#include "pc/IR/BlockCodes.h"
#include "pc/IR/Boxes.h"
#include "pc/IR/Codes.h"
#include "pc/IR/Stages.h"
#include "pc/Pipeline/PipelineReport.h"
#include "pc/Proof/Digest.h"
#include "pc/Proof/Proof.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/Output.h"
#include "pc/Support/Source.h"
#include "pcrt/description.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Signals.h"
#include <cmath>

using namespace mlir;
using namespace pc;

bool CompileOptions::multipliesFloat8() const { return cuda() && pc::multipliesFloat8(kernels.archs); }

int64_t CompileOptions::memoryLimitOn(const MachineModel &machine) const {
  return memoryLimit > 0 ? memoryLimit : static_cast<int64_t>(machine.memoryBytes);
}

/// Returns PCRT_OK if `why` is empty; otherwise reports it as the reason why a file cannot be written.
static pcrt_status written(ModuleOp module, const std::string &why) {
  if (why.empty())
    return PCRT_OK;
  emitError(UnknownLoc::get(module.getContext())) << why;
  return PCRT_RESOURCE;
}

static pcrt_status writeFile(ModuleOp module, StringRef path, llvm::function_ref<void(llvm::raw_ostream &)> write) {
  return written(module, writeOutput(path, [&](llvm::raw_ostream &os) {
                   write(os);
                   return true;
                 }));
}

static std::string planLine(const Plan &plan, ModuleOp module) {
  OpBuilder builder(module.getContext());
  OwningOpRef<PlanOp> op = plan.build(builder);
  return op->line();
}

/// Returns true if kernels are compared with the interpreter.
static bool comparesKernels(const CompileOptions &options) {
  return !options.cuda() && options.to == Phase::Exe && (options.verifyKernels || options.verify == Verify::Full);
}

/// Compares the kernels of an object file with the interpreter: those that are cheap, or, on request, all that the
/// interpreter can run, with a remark about the rest.
static pcrt_status compareKernels(ModuleOp module, ArrayRef<WrittenKernel> kernels, StringRef object,
                                  const CompileOptions &options) {
  TimingScope timing = options.timing ? options.timing->nest("comparison of kernels") : TimingScope();
  bool all = options.verifyKernels;
  constexpr double mostSteps = 4e8, little = 1e5; // these take a few seconds, and a few milliseconds
  int64_t leftOut = 0;
  if (pcrt_status status = compareKernels(kernels, object, mostSteps, all ? HUGE_VAL : little, leftOut))
    return status;
  if (!all)
    return PCRT_OK;
  InFlightDiagnostic remark = module.emitRemark()
                              << kernels.size() - leftOut << " kernels compute the same results as the interpreter";
  if (leftOut)
    remark << "; " << leftOut << " are too large for the interpreter and were not compared";
  return PCRT_OK;
}

/// Writes the object and the executable; only the executable remains.
static pcrt_status buildExecutable(ModuleOp module, const CompileOptions &options, ArrayRef<WrittenKernel> kernels,
                                   Certificate &certificate) {
  std::string error;
  Output output(options.output, error);
  if (pcrt_status status = written(module, error))
    return status;
  SmallString<128> object;
  if (std::error_code code = llvm::sys::fs::createTemporaryFile("pc-program", "o", object)) {
    module.emitError() << "cannot make a temporary file: " << code.message();
    return PCRT_RESOURCE;
  }
  llvm::sys::RemoveFileOnSignal(object);
  static int anchor;
  std::string self = llvm::sys::fs::getMainExecutable(nullptr, &anchor);
  SmallString<256> libraries(llvm::sys::path::parent_path(llvm::sys::path::parent_path(self)));
  llvm::sys::path::append(libraries, "lib");
  bool ok = succeeded(embedImages(module, options.kernels.archs, options.standIn));
  auto step = module->getAttrOfType<StringAttr>(stepAttribute);
  if (ok && !certificate.empty())
    certificate.finish(module, planLine(options.plan, module), step ? step.getValue() : "");
  ok = ok && succeeded(emitObject(module, options.cuda() ? 8 : nativeLanes(), options.cuda(), object));
  pcrt_status status = ok ? PCRT_OK : PCRT_RESOURCE;
  if (ok && comparesKernels(options))
    status = compareKernels(module, kernels, object, options);
  if (!status && failed(linkExecutable(module, object, libraries, options.cuda(), output.temporary(), options.output)))
    status = PCRT_RESOURCE;
  llvm::sys::fs::remove(object);
  return status ? status : written(module, output.keep());
}

/// The name of the pipeline's schedule in the plan.
static StringRef scheduleOf(const Plan &plan) { return plan.pipeline() ? plan.pipeline()->schedule() : ""; }

/// The tensors that ZeRO could not split: for every axis, the parameters that are whole on it (stage 3), or whose
/// optimizer state is.
static llvm::json::Array wholeStates(ModuleOp module, const Plan &plan) {
  llvm::json::Array entries;
  for (const Tactic &tactic : plan.tactics) {
    auto zero = tactic.as<ZeroTactic>();
    if (!zero)
      continue;
    auto axis = StringAttr::get(module.getContext(), zero->axis());
    auto note = [&](auto leaf, StringRef parameter) {
      if (leaf.getLayout() && leaf.getLayout()->state(axis).isWhole())
        entries.push_back(
            llvm::json::Object{{"axis", axis.getValue()},
                               {"parameter", parameter},
                               {"elements", cast<RankedTensorType>(leaf.getValue().getType()).getNumElements()}});
    };
    bool ofParameters = zero->stage() == 3;
    module.walk([&](Operation *op) {
      if (auto parameter = dyn_cast<ParameterOp>(op); parameter && ofParameters)
        note(parameter, parameter.getName());
      if (auto state = dyn_cast<StateOp>(op); state && !ofParameters && state.getName() == PCRT_EXP_AVG)
        note(state, state.getParameter());
    });
  }
  return entries;
}

/// Adds the predicted seconds of a step on the machine to the report.
static pcrt_status predict(ModuleOp module, const CompileOptions &options, const MachineModel &machine,
                           const OpSeconds &known, llvm::json::Object &report, StepTimeline &timeline) {
  FailureOr<Prediction> prediction = predictStep(module, machine, known);
  if (failed(prediction))
    return PCRT_INTERNAL;
  MeshAttr mesh = meshOf(programsOf(module).front());
  double ranks = mesh ? static_cast<double>(mesh.numRanks()) : 1, seconds = prediction->stepSeconds;
  double rate = seconds > 0 ? report.getNumber("flops_per_step").value_or(0) / ranks / seconds : 0;
  if (options.tellPrediction) {
    std::string text;
    llvm::raw_string_ostream(text) << llvm::format("a step takes %.3g s, %.3g Tflop/s per rank", seconds, rate / 1e12);
    module.emitRemark() << "predicted, not measured: on " << machine.name << " (" << machine.device << ") " << text;
  }
  report["predicted"] = llvm::json::Object{{"machine", machine.json()},
                                           {"step_seconds", seconds},
                                           {"program_seconds", prediction->programSeconds},
                                           {"flops_per_second_per_rank", rate}};
  if (stageAxisOf(module))
    report["pipeline"] = pipeline::reportPipeline(module, *prediction, scheduleOf(options.plan), machine.name);
  timeline = std::move(prediction->timeline);
  return PCRT_OK;
}

/// Makes the report of the plan, and checks the memory limit. `forms` is the result of updateForms.
static pcrt_status report(ModuleOp module, const CompileOptions &options, const MachineModel &machine,
                          llvm::json::Array forms) {
  FailureOr<llvm::json::Value> value = buildReport(module, planLine(options.plan, module));
  if (failed(value))
    return PCRT_INTERNAL;
  int64_t bytes = largestArena(module);
  if (options.memoryLimit > 0 && bytes > options.memoryLimit) {
    module.emitError() << "the plan needs " << bytes << " bytes per rank, but --memory-limit allows "
                       << options.memoryLimit << "; use more ranks, more microbatches or a smaller batch";
    return PCRT_RESOURCE;
  }
  llvm::json::Array remarks = remarksOn(*value, options.plan);
  for (const llvm::json::Value &remark : remarks)
    module.emitRemark() << *remark.getAsString();
  for (const std::string &text : memoryWarnings(bytes, largestArena(module, Space::Host), machine)) {
    module.emitWarning() << text;
    remarks.insert(remarks.begin(), text);
  }
  if (options.report.empty() && !options.tellPrediction)
    return PCRT_OK;
  if (!remarks.empty())
    (*value->getAsObject())["remarks"] = std::move(remarks);
  if (llvm::json::Array whole = wholeStates(module, options.plan); !whole.empty())
    (*value->getAsObject())["whole_states"] = std::move(whole);
  if (!forms.empty())
    (*value->getAsObject())["update_forms"] = std::move(forms);
  if (options.searched)
    (*value->getAsObject())["search"] = llvm::json::Object(*options.searched);
  KernelReport kernels;
  if (options.cuda()) {
    FailureOr<KernelReport> counted = reportKernels(module, options.kernels, machine);
    if (failed(counted))
      return PCRT_INTERNAL;
    kernels = std::move(*counted);
  }
  StepTimeline timeline;
  if (pcrt_status status = predict(module, options, machine, kernels.seconds, *value->getAsObject(), timeline))
    return status;
  if (options.report.empty())
    return PCRT_OK;
  if (options.cuda()) {
    llvm::json::Object &object = *value->getAsObject();
    object["beside_arena"] = besideArena(module);
    object["kernels"] = std::move(kernels.kernels);
    object["activation"] = std::move(kernels.activation);
    if (!stageAxisOf(module)) {
      double working = 0; // the time of work, which hides moves
      for (const auto &part : kernels.parts)
        working += *part.second.getAsNumber();
      double all = *object.getObject("predicted")->getNumber("program_seconds");
      kernels.parts["moves"] = std::max(all - working, 0.0);
    }
    (*object.getObject("predicted"))["parts"] = std::move(kernels.parts);
  }
  if (!StringRef(options.report).ends_with(".html"))
    return writeFile(module, options.report, [&](llvm::raw_ostream &os) {
      llvm::json::OStream out(os, /*IndentSize=*/2);
      writeWithTimeline(*value, timeline, out);
      os << "\n";
    });
  if (!stageAxisOf(module)) {
    FailureOr<llvm::json::Value> streams = stepStreams(module, machine, kernels.seconds);
    if (failed(streams))
      return PCRT_INTERNAL;
    (*value->getAsObject())["streams"] = std::move(*streams);
  }
  std::string page;
  llvm::raw_string_ostream os(page);
  if (failed(printReportPage(module, std::move(*value), timeline, os)))
    return PCRT_INTERNAL;
  return writeFile(module, options.report, [&](llvm::raw_ostream &os) { os << page; });
}

/// Reads the program in the file of --reference, which has to be of phase `wanted`. Returns null after an error, which
/// begins with `rule`.
static OwningOpRef<ModuleOp> parseReference(StringRef path, Phase wanted, StringRef rule, llvm::SourceMgr &sources,
                                            ModuleOp module) {
  OwningOpRef<ModuleOp> program = parseProgram(path, sources, module.getContext());
  std::optional<Phase> phase = program ? phaseOf(*program) : std::nullopt;
  if (!program || phase == wanted)
    return program;
  program->emitError() << rule << ", not "
                       << (phase ? "of phase '" + nameOf(*phase).str() + "'" : "of an unknown phase");
  return nullptr;
}

/// Begins the proof with the step program that `options` name, and stores its fingerprint in the module.
static pcrt_status beginWithReference(ModuleOp module, const CompileOptions &options, Proof &proof) {
  llvm::SourceMgr sources;
  ToolDiagnostics diagnostics("pc-compile", sources, module.getContext());
  OwningOpRef<ModuleOp> step =
      parseReference(options.reference, Phase::Step, "--reference must be a program of phase 'step'", sources, module);
  if (!step)
    return PCRT_BAD_INPUT;
  if (failed(proof.begin(*step)))
    return PCRT_VERIFICATION;
  module->setAttr(stepAttribute, StringAttr::get(module.getContext(), Proof::fingerprint(*step)));
  return PCRT_OK;
}

/// Begins the proof of a program that this run did not compile from a model. Later phases are compared with the given
/// reference, or with the program itself.
static pcrt_status proveGiven(ModuleOp module, const PhaseInfo &info, const CompileOptions &options, Proof &proof) {
  if (!options.reference.empty()) {
    if (pcrt_status status = beginWithReference(module, options, proof))
      return status;
    return succeeded(proof.prove(module, info.name)) ? PCRT_OK : PCRT_VERIFICATION;
  }
  if (info.phase == Phase::Step)
    return succeeded(proof.begin(module)) ? PCRT_OK : PCRT_VERIFICATION;
  auto carried = module->getAttrOfType<StringAttr>(stepAttribute);
  if (!carried)
    module.emitRemark()
        << "it is not known what this program must compute: it has no " << stepAttribute
        << ", and --reference=step.mlir was not given; later phases are proved against this program itself";
  if (succeeded(proof.beginAt(module, info.name, carried ? carried.getValue() : "")))
    return PCRT_OK;
  return PCRT_VERIFICATION;
}

/// Proves the program of a phase, or the `given` one. Nothing is proved before phase step, at `staged` without stages,
/// and in kernels.
static pcrt_status prove(ModuleOp module, const PhaseInfo &info, const CompileOptions &options, Proof &proof,
                         bool given) {
  bool isNew = info.phase != Phase::Staged || options.plan.pipeline();
  if (options.verify != Verify::Full || info.phase < Phase::Step || info.phase > Phase::Planned || !isNew)
    return PCRT_OK;
  TimingScope timing = options.timing ? options.timing->nest(("proof of " + info.name).str()) : TimingScope();
  if (given || (info.phase == Phase::Step && !options.reference.empty()))
    return proveGiven(module, info, options, proof);
  auto broken = [&] { return passThatBroke(proof, info.phase, options); };
  bool proved = succeeded(info.phase == Phase::Step ? proof.begin(module) : proof.prove(module, info.name, broken));
  return proved ? PCRT_OK : PCRT_VERIFICATION;
}

/// Only verifies a given program. From here on, its plan includes what the flags add.
static pcrt_status takeGiven(ModuleOp module, Phase phase, const CompileOptions &options) {
  if (pcrt_status status = verifyPhase(module, phase, options))
    return status;
  SignStepOptions signature = signatureOf(options.plan, options.kernels);
  if (phase > Phase::Step && phase < Phase::Kernels)
    writeOrigin(module, signature);
  if (phase != Phase::Step)
    return PCRT_OK;
  PassManager manager(module.getContext()); // it may be edited on purpose, so it is signed as it is
  manager.addPass(createSignStep(signature));
  return succeeded(manager.run(module)) ? PCRT_OK : PCRT_INTERNAL;
}

/// Returns the member `how` of the certificate: the way in which the program after a phase was checked.
static StringRef howIsIt(ModuleOp module, Phase phase, bool given, const CompileOptions &options) {
  bool begins = options.reference.empty() && (phase == Phase::Step || (given && !module->hasAttr(stepAttribute)));
  return options.verify != Verify::Full ? "unproved" : begins ? "given" : "proved";
}

/// Compares a program of the phase kernels with the planned program that `options` name, which is proved first.
static pcrt_status compareWithReference(ModuleOp module, CompileOptions options, WrittenKernels &kernels,
                                        OwningOpRef<ModuleOp> &planned, Certificate &certificate) {
  llvm::SourceMgr sources;
  ToolDiagnostics diagnostics("pc-compile", sources, module.getContext());
  planned =
      parseReference(options.reference, Phase::Planned,
                     "the --reference of a program of phase 'kernels' must be of phase 'planned'", sources, module);
  if (!planned)
    return PCRT_BAD_INPUT;
  options.reference.clear();
  if (pcrt_status status = verifyPhase(*planned, Phase::Planned, options))
    return status;
  Proof proof;
  if (pcrt_status status =
          prove(*planned, phases()[static_cast<size_t>(Phase::Planned)], options, proof, /*given=*/true))
    return status;
  certificate.add(Phase::Planned, *planned, howIsIt(*planned, Phase::Planned, /*given=*/true, options));
  if (failed(verifyTables(*planned, module, comparesKernels(options) ? &kernels : nullptr)))
    return PCRT_VERIFICATION;
  certificate.tablesAreReadBack();
  if (Attribute step = planned->getOperation()->getAttr(stepAttribute))
    module->setAttr(stepAttribute, step);
  else
    module->removeAttr(stepAttribute);
  return PCRT_OK;
}

/// Uses the certificate of an unedited program of phase kernels. Such a program was compared with its planned program
/// when it was written.
static pcrt_status believeKernels(ModuleOp module, const CompileOptions &options, Certificate &certificate) {
  Certificate::Carried carried = certificate.take(module);
  if (carried == Certificate::Carried::Intact)
    return PCRT_OK;
  bool edited = carried == Certificate::Carried::Edited;
  std::string why = edited ? "this program is not the one for which its " + certificateAttribute.str() + " was written"
                           : "this program has no attribute " + certificateAttribute.str() +
                                 ", which --to=kernels writes with --verify=full";
  if (edited && options.verify == Verify::Full) {
    module.emitError() << why << ", so it was edited after it was compared with its planned program; "
                       << "compare it again with --reference=planned.mlir, or compile it unchecked with --verify=phase";
    return PCRT_VERIFICATION;
  }
  module.emitRemark() << why << ", so its step, tables and kernels are not checked against a planned program, "
                      << "and its executable has no certificate; to check them, give --reference=planned.mlir";
  module->removeAttr(certificateAttribute);
  return PCRT_OK;
}

/// Reads the definitions in the file that --optimizer names into the model, and replaces the file's name by the name of
/// the first definition.
static pcrt_status readOptimizer(ModuleOp model, std::string &optimizer) {
  size_t end = StringRef(optimizer).find(".mlir");
  if (end == StringRef::npos)
    return PCRT_OK;
  std::string path = optimizer.substr(0, end + 5), settings = optimizer.substr(end + 5);
  OwningOpRef<ModuleOp> file = parseSourceFile<ModuleOp>(path, model.getContext());
  if (!file)
    return PCRT_BAD_INPUT;
  OptimizerOp first;
  for (Operation &op : llvm::make_early_inc_range(*file->getBody())) {
    auto definition = dyn_cast<OptimizerOp>(op);
    if (!definition) {
      op.emitError() << "--optimizer=" << path << ": expected only pc.optimizer";
      return PCRT_BAD_INPUT;
    }
    first = first ? first : definition;
    definition->moveBefore(model.getBody(), model.getBody()->end());
  }
  if (!first) {
    model.emitError() << "--optimizer=" << path << ": the file has no pc.optimizer";
    return PCRT_BAD_INPUT;
  }
  optimizer = first.getName().str() + settings;
  return PCRT_OK;
}

pcrt_status pc::changeModel(ModuleOp model, CompileOptions &options) {
  const GroupParametersOptions &groups = options.groups;
  std::string &optimizer = options.step.optimizer;
  std::optional<bool> edited = wasEdited(model);
  if (pcrt_status status = readOptimizer(model, optimizer))
    return status;
  if (!(options.step.ema >= 0 && options.step.ema < 1) || (options.step.ema > 0 && !options.adapters.lora.empty())) {
    model.emitError() << "--ema"
                      << (options.adapters.lora.empty() ? ": expected a decay of at least 0 and below 1, as in 0.999"
                                                        : " does not work with --lora; leave out one of them");
    return PCRT_USAGE;
  }
  PassManager passes(model.getContext());
  if (!options.adapters.lora.empty())
    passes.addPass(createAddAdapters(options.adapters));
  if (!groups.groups.empty() || !groups.freeze.empty() || !groups.decay.empty())
    passes.addPass(createGroupParameters(groups));
  if (!options.tiles.tiles.empty())
    passes.addPass(createTileParameters(options.tiles));
  if (failed(passes.run(model)))
    return PCRT_USAGE;
  auto function = model.lookupSymbol<func::FuncOp>("model");
  if (options.train && function && failed(Optimizers().read(model, function, optimizer)))
    return PCRT_USAGE;
  if (edited == false)
    noteDigest(model, /*edited=*/false);
  return PCRT_OK;
}

/// Why the plan's values outside of the device are not supported; empty if they are. The target decides where values
/// can be: CPU ranks compute in the memory of the host.
static std::string whyNoOffload(const CompileOptions &options) {
  for (const Tactic &tactic : options.plan.tactics) {
    auto offload = tactic.as<OffloadTactic>();
    if (!offload)
      continue;
    if (options.plan.find<LocalSgdTactic>())
      return "--offload does not work with --local-sgd; leave out one of the two";
    StringRef what = offload->what();
    if (offload->space() == "host" && !options.cuda())
      return ("--offload=" + what + ":host does not work with --target=cpu; use --offload=" + what + ":disk").str();
  }
  return "";
}

/// Phases before `from` are skipped, and the given program is verified instead of compiled.
pcrt_status pc::compile(ModuleOp module, Phase from, CompileOptions options) {
  std::string error;
  std::optional<MachineModel> machine = MachineModel::find(options.machine, error);
  if (!machine) {
    module.emitError() << error;
    return PCRT_USAGE;
  }
  if (std::string why = whyNoOffload(options); !why.empty()) {
    module.emitError() << why;
    return PCRT_INFEASIBLE;
  }
  std::optional<bool> edited = wasEdited(module);
  if (edited.value_or(false))
    module.emitWarning() << "this program was edited and is no longer the model of its directory. Its checkpoints "
                            "still contain that directory's config.json, so transformers may compute something else "
                            "with their weights; to train the original model, start again from pc-import";
  if (from == Phase::Model && options.train && failed(checkBoxes(module)))
    return PCRT_BAD_INPUT;
  if (!options.emitPlan.empty())
    if (pcrt_status status = writeFile(module, options.emitPlan, [&](llvm::raw_ostream &os) {
          os << options.plan.text(module.getContext()) << options.howFound;
        }))
      return status;
  Proof proof;
  Certificate certificate;
  OwningOpRef<ModuleOp> planned;
  // The tables of phase kernels are compared with a copy of the planned program, which is kept for this.
  WrittenKernels kernels;
  llvm::json::Array forms;
  // Each phase is compiled, or read and verified if it is the given one. Then it is proved, added to the certificate,
  // and reported.
  for (const PhaseInfo &info : phases()) {
    if (info.phase < from)
      continue;
    bool given = info.phase == from;
    bool makesKernels = info.phase == Phase::Kernels && !given;
    if (makesKernels && (options.verify == Verify::Full || comparesKernels(options)))
      planned = module.clone();
    if (makesKernels) { // the program's description contains its plan
      OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
      options.plan.build(builder);
    }
    if (pcrt_status status = given ? takeGiven(module, info.phase, options) : runPhase(module, info.phase, options))
      return status;
    if (makesKernels && planned) {
      TimingScope timing = options.timing ? options.timing->nest("check of the tables") : TimingScope();
      if (failed(verifyTables(*planned, module, comparesKernels(options) ? &kernels : nullptr)))
        return PCRT_VERIFICATION;
      certificate.tablesAreReadBack();
    }
    // Given kernels have no planned program in this compile. They are taken as they are, or compared with a reference.
    if (given && info.phase == Phase::Kernels)
      if (pcrt_status status = options.reference.empty()
                                   ? believeKernels(module, options, certificate)
                                   : compareWithReference(module, options, kernels, planned, certificate))
        return status;
    if (pcrt_status status = prove(module, info, options, proof, given))
      return status;
    if (options.to >= Phase::Kernels && info.phase >= Phase::Step && info.phase <= Phase::Planned)
      certificate.add(info.phase, module, howIsIt(module, info.phase, given, options));
    if (info.phase == Phase::Staged && !options.report.empty())
      forms = updateForms(module, options.plan.ownerAxes(), *machine);
    if (info.phase == Phase::Planned)
      if (pcrt_status status = report(module, options, *machine, std::exchange(forms, {})))
        return status;
    if (info.phase == options.to)
      break;
  }
  if (options.to == Phase::Kernels)
    certificate.carry(module);
  if (options.to != Phase::Exe)
    return writeFile(module, options.output, [&](llvm::raw_ostream &os) {
      dropLines(module);
      if (edited)
        noteDigest(module, *edited);
      module->print(os, OpPrintingFlags().enableDebugInfo());
      os << "\n";
    });
  return buildExecutable(module, options, kernels.kernels, certificate);
}
