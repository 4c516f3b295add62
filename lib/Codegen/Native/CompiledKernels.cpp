//===- CompiledKernels.cpp - Runs the kernels of an object file in the compiler -------------===//
// Loads an object file into the compiler's own process and runs single kernels from it, each in a child process with
// guard pages around its buffers and a limit of CPU time, so that a broken kernel cannot harm the compiler. A kernel
// runs twice, once over all items and once in pieces, and must give the same bits.
//===-----------------------------------------------------------------------------===//
#include "pc/Codegen/CompiledKernels.h"
#include "../Emit/Kernel.h"
#include "pc/IR/Calls.h"
#include "pc/IR/Liveness.h"
#include "pcrt/pcrt.h"

#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"

#include <csignal>
#include <cstring>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace mlir;
using namespace pc;

/// The JIT that has the object file.
struct CompiledKernels::Loaded {
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

CompiledKernels::CompiledKernels(std::unique_ptr<Loaded> loaded) : loaded(std::move(loaded)) {}
CompiledKernels::~CompiledKernels() = default;

/// Replaces the functions of the runtime, which kernels do not call.
static void noRuntime() { abort(); }

/// Only kernels run here. Functions of the runtime, which only the object's step calls, are replaced by a function that
/// aborts.
std::unique_ptr<CompiledKernels> CompiledKernels::load(StringRef object, std::string &error) {
  auto loaded = std::make_unique<Loaded>();
  auto fail = [&](llvm::Error failure) {
    error = llvm::toString(std::move(failure));
    return nullptr;
  };
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  auto jit = llvm::orc::LLJITBuilder().create();
  if (!jit)
    return fail(jit.takeError());
  auto file = llvm::MemoryBuffer::getFile(object);
  if (!file)
    return fail(llvm::errorCodeToError(file.getError()));
  auto read = llvm::object::ObjectFile::createObjectFile(**file);
  if (!read)
    return fail(read.takeError());
  llvm::orc::SymbolMap runtime;
  for (const llvm::object::SymbolRef &symbol : (*read)->symbols()) {
    auto flags = symbol.getFlags();
    auto name = symbol.getName();
    if (!flags || !name)
      return fail(llvm::joinErrors(flags.takeError(), name.takeError()));
    if ((*flags & llvm::object::SymbolRef::SF_Undefined) && name->starts_with("pcrt_"))
      // The object's step calls the runtime, which is not in this process; only kernels are run.
      runtime[(*jit)->mangleAndIntern(*name)] = {llvm::orc::ExecutorAddr::fromPtr(noRuntime),
                                                 llvm::JITSymbolFlags::Exported};
  }
  if (auto failure = (*jit)->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(runtime))))
    return fail(std::move(failure));
  if (auto failure = (*jit)->addObjectFile(std::move(*file)))
    return fail(std::move(failure));
  loaded->jit = std::move(*jit);
  return std::unique_ptr<CompiledKernels>(new CompiledKernels(std::move(loaded)));
}

namespace {
constexpr int64_t alignment = 64; // the alignment of values in an arena
constexpr char untouched = 0x5a;

/// Memory that a child writes and its parent reads, between two guard pages.
class SharedBuffer {
public:
  /// Inaccessible pages before and after the buffer stop a kernel that writes far beyond it.
  explicit SharedBuffer(int64_t bytes) : bytes(bytes), page(sysconf(_SC_PAGESIZE)) {
    room = static_cast<int64_t>(llvm::alignTo(bytes, alignment));
    mapped = static_cast<int64_t>(llvm::alignTo(std::max<int64_t>(room, 1), page)) + 2 * page;
    void *memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    base = memory == MAP_FAILED ? nullptr : static_cast<char *>(memory);
    if (!base)
      return;
    memset(base, untouched, mapped);
    mprotect(base, page, PROT_NONE);
    mprotect(base + mapped - page, page, PROT_NONE);
  }
  SharedBuffer(SharedBuffer &&other) noexcept
      : bytes(other.bytes), room(other.room), mapped(other.mapped), page(other.page),
        base(std::exchange(other.base, nullptr)) {}
  ~SharedBuffer() {
    if (base)
      munmap(base, mapped);
  }
  explicit operator bool() const { return base; }
  char *begin() const { return base + mapped - page - room; }
  /// Returns true if nothing outside of the `bytes` has been written.
  bool isSound() const {
    auto isUntouched = [](char c) { return c == untouched; };
    return std::all_of(base + page, begin(), isUntouched) && std::all_of(begin() + bytes, begin() + room, isUntouched);
  }

  const int64_t bytes;

private:
  int64_t room, mapped, page;
  char *base;
};

/// The result that a child reports for its kernel.
enum Outcome : int { Unfinished = 0x5a5a5a5a, Done = 1, Refused, DependsOnOrder };

/// A kernel's rows and buffers.
class KernelRun {
public:
  using Bytes = CompiledKernels::Bytes;

  /// Operands that share a home in the program share a buffer here.
  KernelRun(const WrittenKernel &kernel, const pcrt_program &program, ArrayRef<Bytes> operands, bool inF32)
      : operands(operands), inF32(inF32) {
    for (int64_t row : kernel.rows) {
      rows.push_back(&program.kernels[row]);
      scratchBytes = std::max(scratchBytes, rows.back()->scratch_bytes);
    }
    Operation *op = *kernel.op;
    SmallVector<Value> values(op->getOperands());
    llvm::append_range(values, op->getResults());
    llvm::for_each(values, [&](Value value) { addBuffer(value, /*own=*/false); });
    if (isa<UpdateOp>(op)) // the leaf that it sets
      addBuffer(op->getOperand(0), /*own=*/true);
    for (size_t i = 0; i < bufferOf.size(); ++i)
      for (int64_t bytes : pieceBytes(op, i))
        args.push_back(buffers[bufferOf[i]].begin() + bytes);
    scratch.emplace(scratchBytes);
    said.emplace(sizeof(int));
  }

  bool hasMemory() const {
    return llvm::all_of(buffers, [](const SharedBuffer &buffer) { return bool(buffer); }) && *scratch && *said;
  }

  /// Runs in a child process, whose only output is this result.
  void run(unsigned seconds) {
    // The child must die from these signals, so that the parent sees them, instead of running the compiler's crash
    // handler.
    for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGVTALRM})
      signal(number, SIG_DFL);
    itimerval limit{{0, 0}, {seconds, 0}};
    setitimer(ITIMER_VIRTUAL, &limit, nullptr);
    fill();
    bool ok = runRows(1);
    std::vector<Bytes> first = results();
    fill();
    ok = ok && runRows(3);
    outcome() = !ok ? Refused : first != results() ? DependsOnOrder : Done;
  }

  /// The result of the child process.
  Outcome found() { return static_cast<Outcome>(outcome()); }
  /// The bytes of the kernel's results, from the buffers that the child shares.
  std::vector<Bytes> results() const {
    std::vector<Bytes> bytes;
    for (size_t i = operands.size(); i < bufferOf.size(); ++i) {
      const SharedBuffer &buffer = buffers[bufferOf[i]];
      bytes.emplace_back(buffer.begin(), buffer.begin() + buffer.bytes);
    }
    return bytes;
  }
  bool isSound() const {
    return llvm::all_of(buffers, [](const SharedBuffer &buffer) { return buffer.isSound(); });
  }

private:
  /// Adds a buffer for each value. Values in the same bytes of the arena share one.
  void addBuffer(Value value, bool own) {
    auto isSame = [&](Value other) {
      return other == value || (homeOrNone(value) >= 0 && homeOrNone(other) == homeOrNone(value));
    };
    auto *same = own ? inBuffers.end() : llvm::find_if(inBuffers, isSame);
    bufferOf.push_back(same - inBuffers.begin());
    if (same != inBuffers.end())
      return;
    inBuffers.push_back(value);
    buffers.emplace_back(byteSize(value.getType()));
  }

  void fill() {
    for (auto [i, bytes] : llvm::enumerate(operands))
      memcpy(buffers[bufferOf[i]].begin(), bytes.data(), bytes.size());
  }

  /// Runs each row as one range of items, or as `pieces` ranges from the last to the first.
  bool runRows(int64_t pieces) {
    return llvm::all_of(rows, [&](const pcrt_kernel *row) {
      for (int64_t piece = pieces; piece-- > 0;) {
        // Scratch memory is initialised to NaN, so that reading unwritten memory affects results.
        memset(scratch->begin(), 0xff, row->scratch_bytes);
        int64_t lo = row->items * piece / pieces, hi = row->items * (piece + 1) / pieces;
        if ((inF32 && row->fn_f32 ? row->fn_f32 : row->fn)(args.data(), lo, hi, scratch->begin()))
          return false;
      }
      return true;
    });
  }

  volatile int &outcome() { return *reinterpret_cast<volatile int *>(said->begin()); }

  ArrayRef<Bytes> operands;
  bool inF32;
  SmallVector<const pcrt_kernel *> rows;
  int64_t scratchBytes = 0;
  std::vector<SharedBuffer> buffers;
  SmallVector<Value> inBuffers; ///< for each buffer, the first value in it
  SmallVector<size_t> bufferOf; ///< by operand and result
  SmallVector<void *> args;
  std::optional<SharedBuffer> scratch, said;
};
} // namespace

/// A child process runs the kernels. Its exit and the shared buffers give the outcome.
std::string CompiledKernels::run(const WrittenKernel &kernel, ArrayRef<Bytes> operands, bool inF32, unsigned seconds,
                                 std::vector<Bytes> &results) const {
  auto symbol = loaded->jit->lookup(kernel.program);
  if (!symbol)
    return llvm::toString(symbol.takeError());
  KernelRun run(kernel, *symbol->toPtr<const pcrt_program *>(), operands, inF32);
  if (!run.hasMemory())
    return "cannot be run: there is not enough memory";
  // A kernel may crash, loop or overwrite memory, so it runs in a separate process.
  pid_t child = fork();
  if (child < 0)
    return std::string("cannot be run: no process could be started: ") + strerror(errno);
  if (child == 0) {
    run.run(seconds);
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGVTALRM ? "did not finish within " + std::to_string(seconds) + " s of CPU time"
                                         : std::string("was killed by a signal: ") + strsignal(WTERMSIG(status));
  if (!run.isSound())
    return "writes outside its buffers";
  results = run.results();
  switch (run.found()) {
  case Done:
    return "";
  case Refused:
    return "rejects operands that its op accepts";
  case DependsOnOrder:
    return "gives different bits when its work items run in a different order";
  case Unfinished:
    break;
  }
  return "did not finish";
}
