//===- Program.h - PTX as data --------------------------------------------===//
// The result of reading PTX: kernels with their registers, variables and decoded instructions. The reader is written
// from NVIDIA's documents alone and includes nothing of the compiler or of the stand-in, so that it can find what these
// have in common and wrong.
//===----------------------------------------------------------------------===//
#ifndef PC_TEST_PTX_READER_PROGRAM_H
#define PC_TEST_PTX_READER_PROGRAM_H

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace pc::ptx {

constexpr int warpSize = 32;

/// Thrown for text that the reader cannot read, and for kernels that do what PTX does not define.
struct Fault {
  std::string text;
};

/// The value of a register in each lane of a warp, zero-extended.
using Lanes = std::array<uint64_t, warpSize>;

/// A fundamental type: kind 'u', 's', 'b', 'f' (f32), 'h' (bf16) or 'p' (predicate). A float of twice its bits is a
/// packed pair, f32x2 or bf16x2.
struct Type {
  char kind = 0;
  int bits = 0;
  bool operator==(const Type &) const = default;
};

/// A register or constant, a list of them in braces, or an address.
struct Operand {
  std::vector<int> slots; ///< registers; negative numbers, from -1 down, are constants
  int64_t offset = 0;     ///< of an address, in bytes
  bool address = false;
  bool negated = false; ///< !p

  int slot() const { return slots.front(); }
};

class Warp;
struct Instruction;
/// Runs an instruction for the lanes whose bits are set.
using Execute = void (*)(const Instruction &, Warp &, uint32_t lanes);

struct Instruction {
  enum Flow { Next, Branch, Exit, Barrier };

  Execute run = nullptr; ///< null for an instruction that only changes the control flow
  Flow flow = Next;
  std::vector<Operand> operands;
  int results = 1;           ///< the number of operands that are written, 0 or 1; it is the first one
  bool moves = false;        ///< mov, which may copy an undefined value
  bool isProduct = false;    ///< wgmma.mma_async, which checks the registers of its sums itself
  int guard = -1;            ///< the predicate of @p
  bool guardNegated = false; ///< @!p
  int target = -1;           ///< of a branch
  int join = -1;             ///< the first instruction at which lanes that a branch separates are together again
  Type type;
  int number = 0, extent = 0; ///< further information from the suffixes, defined by the instruction's decoder
  bool flag = false;          ///< the same
  int line = 0;
  std::string text;
};

/// A variable in shared memory; `bytes` is 0 if the launch decides.
struct SharedVariable {
  uint64_t address, bytes;
};

/// A parameter of a kernel. Its address is `parameterWindow` + offset.
struct Parameter {
  uint64_t offset, bytes;
};
constexpr uint64_t parameterWindow = uint64_t(1) << 61;

struct Kernel {
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<Instruction> code;
  std::vector<int> registerBits;          ///< the bits of each register; a predicate has 1
  std::vector<Lanes> constants;           ///< slot -1 - i is constant i
  std::map<std::string, int> specials;    ///< the registers that stand for %tid.x and others
  std::vector<SharedVariable> shared;     ///< static ones, with gaps between them
  uint64_t dynamicShared = 0;             ///< address of the launch's own bytes
  std::array<int, 3> threads = {0, 0, 0}; ///< .reqntid, or the most by .maxntid; 0: not stated
  bool exactThreads = false;
};

struct Module {
  std::string target; ///< "sm_90a"
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
  std::map<std::string, std::vector<uint64_t>> globals; ///< variables in global and constant memory, with their bytes
};

/// Sets `join` of every instruction.
void findJoins(Kernel &kernel);

/// Reads a whole text, or throws a Fault that names the line.
Module parse(const std::string &text);

/// The suffixes of an opcode. Decoders take them one by one; what is left over is not understood.
class Opcode {
public:
  Opcode(std::string_view text);

  std::string_view name() const { return parts[0]; }
  bool take(std::string_view suffix);
  /// Takes one of several suffixes and returns its index; -1 if none comes next.
  int takeOne(std::initializer_list<std::string_view> suffixes);
  void need(std::string_view suffix);
  Type type();
  /// Takes a suffix that begins with `prefix` and returns the number after it, or -1.
  int number(std::string_view prefix);
  bool done() const { return next == parts.size(); }
  [[noreturn]] void refuse() const;

private:
  std::string text;
  std::vector<std::string> parts;
  size_t next = 1;
};

/// Takes the suffixes of an instruction whose operands are known.
using Decoder = void (*)(Opcode &, Instruction &);
using DecoderTable = std::map<std::string_view, Decoder>;
const DecoderTable &scalarInstructions();
const DecoderTable &memoryInstructions();
const DecoderTable &warpInstructions();
const DecoderTable &warpgroupInstructions();

} // namespace pc::ptx

#endif
