//===- tables-test.cpp - Reads a program's tables back through pcrt.h -----===//
// usage: tables-test
// Rows of every struct are written to an object file and must be equal field by field when they are read. The tables of
// compiled programs, which are read as the runtime reads them, must agree with the programs' IR.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "Host/Tables.h"
#include "pc/Codegen/Codegen.h"
#include "pc/Driver/Registration.h"
#include "pcrt/pcrt.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"

using namespace mlir;

namespace {

/// Returns every field as text. A pointer is shown as the characters that it points to, except a pointer to code.
template <typename T> std::vector<std::string> show(const T &row) {
  std::vector<std::string> fields;
  pc::forEachField(row, [&](auto field) {
    using FieldT = decltype(field);
    if constexpr (!std::is_pointer_v<FieldT>)
      fields.push_back(std::to_string(field));
    else if constexpr (std::is_function_v<std::remove_pointer_t<FieldT>>)
      fields.push_back(field ? "code" : "null");
    else
      fields.push_back(field ? reinterpret_cast<const char *>(field) : "null");
  });
  return fields;
}

template <typename T> void expectRow(const T &row, const T &expected, const std::string &what) {
  std::vector<std::string> got = show(row), wanted = show(expected);
  for (size_t i = 0; i < wanted.size(); ++i)
    expect(got[i] == wanted[i], what + ": field " + std::to_string(i) + " is " + got[i] + ", not " + wanted[i]);
}

/// Loads the object file of a module into this process, with empty functions instead of the runtime's.
class Loaded {
public:
  explicit Loaded(ModuleOp module) {
    for (auto device : llvm::make_early_inc_range(module.getOps<gpu::GPUModuleOp>()))
      device.erase();
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    jit = llvm::cantFail(llvm::orc::LLJITBuilder().create());
    llvm::orc::SymbolMap symbols;
    for (auto function : module.getOps<LLVM::LLVMFuncOp>())
      if (function.isExternal())
        symbols[jit->mangleAndIntern(function.getName())] = {llvm::orc::ExecutorAddr::fromPtr(&failures), {}};
    llvm::cantFail(jit->getMainJITDylib().define(llvm::orc::absoluteSymbols(symbols)));
    SmallString<128> object;
    if (llvm::sys::fs::createTemporaryFile("pc-tables", "o", object) ||
        failed(pc::emitObject(module, pc::nativeLanes(), /*portable=*/false, object)))
      exit(1);
    auto file = llvm::MemoryBuffer::getFile(object);
    llvm::sys::fs::remove(object);
    llvm::cantFail(jit->addObjectFile(std::move(*file)));
  }
  template <typename T> const T &at(const char *symbol) {
    return *llvm::cantFail(jit->lookup(symbol)).toPtr<const T *>();
  }

private:
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

/// Writes a row whose fields are all different, alone and as the second one of two, and reads both.
template <typename T> void checkLayout(MLIRContext &context, const std::string &name) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  pc::Tables tables(*module);
  T row{};
  int next = 0;
  pc::forEachField(row, [&](auto &field) {
    using FieldT = std::remove_reference_t<decltype(field)>;
    std::string text = "field" + std::to_string(++next);
    if constexpr (std::is_same_v<FieldT, const char *>)
      field = tables.text(text);
    else if constexpr (std::is_pointer_v<FieldT>)
      field = reinterpret_cast<FieldT>(const_cast<void *>(tables.bytes(text, text + '\0')));
    else
      field = static_cast<FieldT>(next);
  });
  tables.publish("row", row);
  struct Head {
    const T *rows;
  };
  tables.publish("head", Head{.rows = tables.array<T>("rows", {T{}, row})});
  if constexpr (std::is_same_v<T, pcrt_program>) {
    tables.set("row", &pcrt_program::stage, 1234);
    tables.set("row", &pcrt_program::flows, nullptr);
    row.stage = 1234, row.flows = nullptr;
  }
  Loaded loaded(*module);
  expectRow(loaded.at<T>("row"), row, name);
  if constexpr (!std::is_same_v<T, pcrt_program>)
    expectRow(loaded.at<Head>("head").rows[1], row, "second " + name);
}

Loaded compile(MLIRContext &context, const char *text, const char *passes) {
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  PassManager manager(&context);
  if (!module || failed(parsePassPipeline(passes, manager)) || failed(manager.run(*module)))
    exit(1);
  return Loaded(*module);
}

/// Checks the tables of a kernel, a product, and moves of every kind.
void checkHostProgram(MLIRContext &context) {
  Loaded loaded = compile(context, R"(
    pc.mesh <dp = 2, tp = 3>
    pc.program "m" batch 4 sequence 16 vocabulary 100 config "{}"
    func.func @step() {
      %x = pc.parameter "x" dims ["a", "b"] init <fill, 1.0> source <"x", shape = [6, 4], start = [0, 0], size = [6, 4]> global [6, 4] layout <[_, _]> : tensor<6x4xf32>
      %w = pc.parameter "w" dims ["b", "c"] init <fill, 1.0> source <"w", shape = [4, 5], start = [0, 0], size = [4, 5]> global [4, 5] layout <[_, _]> : tensor<4x5xf32>
      %p = pc.einsum "r i, i o -> r o" %x, %w : (tensor<6x4xf32>, tensor<4x5xf32>) -> tensor<6x5xf32> loc("product")
      %e = pc.activation relu %p : (tensor<6x5xf32>) -> tensor<6x5xf32> loc("positive")
      %s = pc.slice %x dim 0 shift 1 on ["tp"] : (tensor<6x4xf32>) -> tensor<2x4xf32> loc("mine")
      %t = pc.all_to_all %x from 0 to 1 on ["dp"] : (tensor<6x4xf32>) -> tensor<12x2xf32> loc("turn")
      %m = pc.all_reduce max %e on ["dp", "tp"] : (tensor<6x5xf32>) -> tensor<6x5xf32> loc("most")
      %u = pc.start (%a = %m : tensor<6x5xf32> -> tensor<6x5xf32>, %b = %s : tensor<2x4xf32> -> tensor<2x4xf32>) {
        %0 = pc.all_reduce sum %a on ["tp"] : (tensor<6x5xf32>) -> tensor<6x5xf32> loc("total")
        %1 = pc.all_gather %b dim 1 on ["tp"] : (tensor<2x4xf32>) -> tensor<2x12xf32> loc("all")
        pc.yield %0, %1 : tensor<6x5xf32>, tensor<2x12xf32>
      } : !pc.ticket
      %v:2 = pc.wait %u : tensor<6x5xf32>, tensor<2x12xf32>
      pc.output gradient "x" %v#1 global [2, 12] layout <[_, _]> : tensor<2x12xf32>
      pc.output gradient "w" %v#0 global [6, 5] layout <[_, _]> : tensor<6x5xf32>
      pc.output gradient "t" %t global [12, 2] layout <[_, _]> : tensor<12x2xf32>
      return
    })",
                          "pc-plan-memory,pc-generate-kernels");
  const auto &program = loaded.at<pcrt_program>("pc_program");
  expect(program.mesh_sizes[0] == 2 && program.mesh_sizes[1] == 3, "sizes of the mesh");
  expect(StringRef(program.mesh_names[0]) == "dp" && StringRef(program.mesh_names[1]) == "tp", "axes of the mesh");
  expect(program.arena_bytes > 4 * (24 + 20 + 30) && program.step, "the arena, the step");
  expect(program.json_bytes == int64_t(strlen(program.json)) && program.json[0] == '{', "the description");
  // The expected row copies the fields that the compiler chooses and those that were checked above.
  pcrt_program expected = program;
  expected.abi_version = PCRT_ABI_VERSION, expected.num_mesh_axes = 2;
  expected.num_groups = 3, expected.num_kernels = 1, expected.num_gemms = 1, expected.num_moves = 5;
  expected.target = PCRT_CPU, expected.num_images = 0, expected.num_attentions = 0, expected.num_tickets = 1;
  expected.images = nullptr, expected.device_kernels = nullptr, expected.attentions = nullptr;
  expected.workspace_offset = 0, expected.workspace_bytes = 0;
  expected.num_stages = 0, expected.stage_axis = 0, expected.stage = 0, expected.num_flows = 0;
  expected.evaluate = nullptr, expected.round = nullptr, expected.flows = nullptr, expected.next_stage = nullptr;
  expect(!memcmp(&program, &expected, sizeof program), "pc_program");
  const pcrt_group groups[] = {{1, {1}}, {1, {0}}, {2, {0, 1}}};
  for (auto [i, group] : llvm::enumerate(groups))
    expectRow(program.groups[i], group, "group " + std::to_string(i));
  const pcrt_kernel &kernel = program.kernels[0];
  expect(kernel.fn && kernel.items > 0 && kernel.scratch_bytes >= 0, "the kernel's work");
  expectRow(kernel,
            {.name = "activation positive",
             .kind = "activation",
             .fn = kernel.fn,
             .fn_f32 = nullptr,
             .items = kernel.items,
             .scratch_bytes = kernel.scratch_bytes},
            "kernel");
  expectRow(program.gemms[0],
            {.name = "einsum product",
             .batch = 1,
             .m = 6,
             .n = 5,
             .k = 4,
             .a_batch_stride = 0,
             .a_m_stride = 4,
             .a_k_stride = 1,
             .b_batch_stride = 0,
             .b_k_stride = 5,
             .b_n_stride = 1,
             .c_batch_stride = 0,
             .c_m_stride = 5,
             .c_n_stride = 1,
             .group = 0,
             .experts = 0,
             .tokens = 0,
             .rows = 0,
             .grouped = PCRT_GROUPED_NONE,
             .a_lies = 0,
             .b_lies = 0,
             .c_lies = 0,
             .a_dtype = PCRT_F32,
             .b_dtype = PCRT_F32,
             .c_dtype = PCRT_F32,
             .accumulate = 0,
             .epilogue = PCRT_EPILOGUE_NONE,
             .rest = -1,
             .a_scales = 0,
             .b_scales = 0},
            "product");
  const pcrt_move_desc moves[] = {
      {"slice mine", PCRT_SLICE, 0, PCRT_F32, PCRT_SUM, 1, 6, 4, 1, 1, "forward", 1, 0, 0},
      {"all_to_all turn", PCRT_ALL_TO_ALL, 1, PCRT_F32, 0, 1, 12, 1, 1, 4, "forward", 0, 0, 0},
      {"all_reduce most", PCRT_ALL_REDUCE, 2, PCRT_F32, PCRT_MAX, 30, 1, 1, 1, 1, "forward", 0, 0, 0},
      {"all_reduce total", PCRT_ALL_REDUCE, 0, PCRT_F32, PCRT_SUM, 30, 1, 1, 1, 1, "forward", 0, 0, 0},
      {"all_gather all", PCRT_ALL_GATHER, 0, PCRT_F32, PCRT_SUM, 2, 12, 1, 1, 1, "forward", 0, 0, 0}};
  for (auto [i, move] : llvm::enumerate(moves))
    expectRow(program.moves[i], move, "move " + std::to_string(i));
}

/// Checks the tables that only CUDA programs have.
void checkCudaProgram(MLIRContext &context) {
  Loaded loaded = compile(context, R"(
    pc.mesh <dp = 1>
    pc.program "m" batch 2 sequence 8 vocabulary 100 config "{}"
    func.func @step() {
      %x = pc.parameter "x" dims ["b", "s", "k", "g", "d"] init <fill, 1.0> source <"x", shape = [2, 8, 2, 3, 16], start = [0, 0, 0, 0, 0], size = [2, 8, 2, 3, 16]> global [2, 8, 2, 3, 16] layout <[_, _, _, _, _]> : tensor<2x8x2x3x16xf32>
      %y = pc.parameter "y" dims ["b", "s", "k", "d"] init <fill, 1.0> source <"y", shape = [2, 8, 2, 16], start = [0, 0, 0, 0], size = [2, 8, 2, 16]> global [2, 8, 2, 16] layout <[_, _, _, _]> : tensor<2x8x2x16xf32>
      %q = pc.cast %x : (tensor<2x8x2x3x16xf32>) -> tensor<2x8x2x3x16xbf16> loc("narrow")
      %k = pc.cast %y : (tensor<2x8x2x16xf32>) -> tensor<2x8x2x16xbf16>
      %o, %lse = pc.attention causal %q, %k, %k scale 0.5 : (tensor<2x8x2x3x16xbf16>, tensor<2x8x2x16xbf16>, tensor<2x8x2x16xbf16>) -> (tensor<2x8x2x3x16xbf16>, tensor<2x2x3x8xf32>) loc("look")
      %g:3 = pc.attention_grad causal %q, %k, %k, %o, %lse, %o scale 0.5 : (tensor<2x8x2x3x16xbf16>, tensor<2x8x2x16xbf16>, tensor<2x8x2x16xbf16>, tensor<2x8x2x3x16xbf16>, tensor<2x2x3x8xf32>, tensor<2x8x2x3x16xbf16>) -> (tensor<2x8x2x3x16xbf16>, tensor<2x8x2x16xbf16>, tensor<2x8x2x16xbf16>) loc("look")
      pc.output gradient "x" %g#0 global [2, 8, 2, 3, 16] layout <[_, _, _, _, _]> : tensor<2x8x2x3x16xbf16>
      pc.output gradient "y" %g#1 global [2, 8, 2, 16] layout <[_, _, _, _]> : tensor<2x8x2x16xbf16>
      return
    })",
                          "pc-plan-memory{target=cuda},pc-generate-kernels{target=cuda}");
  const auto &program = loaded.at<pcrt_program>("pc_program");
  expect(program.target == PCRT_CUDA && program.num_attentions == 2, "a CUDA program of two attentions");
  expect(program.workspace_bytes > 0 && program.workspace_offset + program.workspace_bytes == program.arena_bytes,
         "the workspace at the end of the arena");
  for (int i = 0; i < program.num_kernels; ++i) {
    const pcrt_device_kernel &kernel = program.device_kernels[i];
    expectRow(program.kernels[i],
              {.name = program.kernels[i].name,
               .kind = program.kernels[i].kind,
               .fn = nullptr,
               .fn_f32 = nullptr,
               .items = 0,
               .scratch_bytes = 0},
              "kernel of a device");
    expectRow(kernel,
              {.entry = kernel.entry,
               .grid = {std::max(kernel.grid[0], 1), 1, 1},
               .block = {std::clamp(kernel.block[0], 1, 1024), 1, 1},
               .num_args = std::clamp(kernel.num_args, 1, 16),
               .shared_bytes = 0},
              "device kernel");
    expect(StringRef(kernel.entry).starts_with("pc_"), "entry of a kernel");
  }
  pcrt_attention_desc forward{.name = "attention look",
                              .backward = 0,
                              .causal = 1,
                              .dtype = PCRT_BF16,
                              .batch = 2,
                              .q_heads = 6,
                              .kv_heads = 2,
                              .q_length = 8,
                              .kv_length = 8,
                              .head_dim = 16,
                              .scale = 0.5,
                              .q = {768, 16, 96, 1},
                              .k = {256, 16, 32, 1},
                              .v = {256, 16, 32, 1},
                              .o = {768, 16, 96, 1},
                              .d_o = {},
                              .dq = {},
                              .dk = {},
                              .dv = {},
                              .workspace_bytes = program.workspace_bytes,
                              .own = {}};
  pcrt_attention_desc backward = forward;
  backward.backward = 1;
  llvm::copy(forward.q, backward.d_o), llvm::copy(forward.q, backward.dq);
  llvm::copy(forward.k, backward.dk), llvm::copy(forward.k, backward.dv);
  backward.workspace_bytes = program.attentions[1].workspace_bytes;
  expect(backward.workspace_bytes > 0 && backward.workspace_bytes < program.workspace_bytes,
         "the gradient's workspace");
  for (pcrt_attention_desc *desc : {&forward, &backward}) {
    const pcrt_attention_desc &row = program.attentions[desc->backward];
    llvm::copy(row.own, desc->own);
    expect(row.own[0] > 0 && StringRef(program.kernels[row.own[0] - 1].kind) == "attention", "kernels of its own");
    expectRow(row, *desc, "attention");
  }
}

/// Checks a flow from one stage to another.
void checkStages(MLIRContext &context) {
  Loaded loaded = compile(context, R"(
    module attributes {pc.stage_axis = "pp"} {
      module @stage0 attributes {pc.stage = 0 : i64} {
        pc.mesh <pp = 2>
        pc.program "m" batch 8 sequence 1 vocabulary 5 config "{}"
        pc.arena 128
        func.func @step() {
          pc.task forward chunk 0 microbatch 0
          %a = pc.constant 2.0 : tensor<4xf32, #pc.home<64>>
          pc.send %a to 1 flow 3 message 0 slots 2 : tensor<4xf32, #pc.home<64>>
          return
        }
      }
      module @stage1 attributes {pc.stage = 1 : i64} {
        pc.mesh <pp = 2>
        pc.program "m" batch 8 sequence 1 vocabulary 5 config "{}"
        pc.arena 192
        func.func @step() {
          pc.task forward chunk 1 microbatch 0
          %a = pc.receive from 0 flow 3 message 0 slots 2 : tensor<4xf32, #pc.home<0>>
          return
        }
      }
    })",
                          "pc-generate-kernels");
  const auto &first = loaded.at<pcrt_program>("pc_program");
  const pcrt_program &second = *first.next_stage;
  expect(first.num_stages == 2 && first.stage_axis == 0 && first.stage == 0 && second.stage == 1 && !second.next_stage,
         "two stages");
  expect(first.arena_bytes == 128 && second.arena_bytes == 192 && first.step != second.step, "an arena each");
  pcrt_flow flow{.name = "forward of chunk 0 from stage 0 to stage 1",
                 .stage = 1,
                 .id = 3,
                 .sends = 1,
                 .slots = 2,
                 .messages = 1,
                 .bytes = 16};
  expectRow(first.flows[0], flow, "flow of the sender");
  flow.stage = 0, flow.sends = 0;
  expectRow(second.flows[0], flow, "flow of the receiver");
}

} // namespace

int main() {
  DialectRegistry registry;
  pc::registerDialects(registry);
  pc::registerPasses();
  MLIRContext context(registry);
  context.loadDialect<LLVM::LLVMDialect>();
  checkLayout<pcrt_kernel>(context, "pcrt_kernel");
  checkLayout<pcrt_device_kernel>(context, "pcrt_device_kernel");
  checkLayout<pcrt_image>(context, "pcrt_image");
  checkLayout<pcrt_attention_desc>(context, "pcrt_attention_desc");
  checkLayout<pcrt_gemm_desc>(context, "pcrt_gemm_desc");
  checkLayout<pcrt_move_desc>(context, "pcrt_move_desc");
  checkLayout<pcrt_group>(context, "pcrt_group");
  checkLayout<pcrt_flow>(context, "pcrt_flow");
  checkLayout<pcrt_program>(context, "pcrt_program");
  checkHostProgram(context);
  checkCudaProgram(context);
  checkStages(context);
  return finishChecks();
}
