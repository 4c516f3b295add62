//===- WarpgroupAsm.cpp - Parses inline PTX of warpgroup products ------------------------------===//
// Kernels write wgmma as inline PTX (Kernels/WarpgroupProducts.cpp). The stand-in cannot run PTX, so this parser reads
// the text into instructions, which become calls. It accepts only the forms that our own kernels use.
//===-----------------------------------------------------------------------------===//
#include "WarpgroupAsm.h"
#include "pcrt/host_image.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstrTypes.h"

using namespace llvm;
using namespace pc::toolchain;

/// Splits operands at the commas outside of braces.
static SmallVector<StringRef> operandsOf(StringRef text) {
  SmallVector<StringRef> operands;
  size_t from = 0;
  bool inside = false;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && (text[i] == '{' || text[i] == '}'))
      inside = text[i] == '{';
    if (i == text.size() || (text[i] == ',' && !inside)) {
      operands.push_back(text.slice(from, i).trim());
      from = i + 1;
    }
  }
  return operands;
}

/// Reads "$4" or "{$4, $5}" as numbers of operands.
static bool readNumbers(StringRef text, SmallVectorImpl<unsigned> &numbers) {
  if (text.consume_front("{") && !text.consume_back("}"))
    return false;
  for (StringRef part : split(text, ',')) {
    part = part.trim();
    unsigned number;
    if (!part.consume_front("$") || part.getAsInteger(10, number))
      return false;
    numbers.push_back(number);
  }
  return true;
}

/// wgmma.mma_async.sync.aligned.m64n<n>k16.f32.bf16.bf16 d, a, b, adds, 1, 1[, transposed a], transposed b
static bool readProduct(StringRef shape, StringRef rest, const StringMap<bool> &predicates,
                        WarpgroupInstruction &product) {
  auto operands = operandsOf(rest);
  if (!shape.consume_back("k16.f32.bf16.bf16") || shape.getAsInteger(10, product.n) || operands.size() < 7)
    return false;
  bool registers = operands[1].starts_with("{");
  if (operands.size() != (registers ? 7 : 8) || operands[4] != "1" || operands[5] != "1")
    return false;
  auto adds = predicates.find(operands[3]);
  if (adds == predicates.end() || !readNumbers(operands[0], product.d) || !readNumbers(operands[1], product.ab) ||
      !readNumbers(operands[2], product.ab))
    return false;
  bool isWhole = product.n >= 8 && product.n <= 256 && product.n % 8 == 0 && product.d.size() == product.n / 2;
  if (!isWhole || product.ab.size() != (registers ? 5 : 2))
    return false;
  product.flags = (adds->second ? PCRT_WGMMA_ADDS : 0) | (registers ? PCRT_WGMMA_REGISTERS : 0) |
                  (!registers && operands[6] == "1" ? PCRT_WGMMA_A_TRANSPOSED : 0) |
                  (operands.back() == "1" ? PCRT_WGMMA_B_TRANSPOSED : 0);
  return true;
}

/// Accepts only the statements that the emitters write. Returns std::nullopt for any other assembly.
std::optional<SmallVector<WarpgroupInstruction>> pc::toolchain::parseWarpgroupAsm(StringRef text) {
  using Instruction = WarpgroupInstruction;
  SmallVector<Instruction> all;
  StringMap<bool> predicates;
  for (StringRef statement : split(text, ';')) {
    // Braces only limit the scope of registers.
    statement = statement.trim();
    while (statement.consume_front("{") || statement.consume_front("}"))
      statement = statement.trim();
    auto [name, rest] = statement.split(' ');
    if (statement.empty() || name == ".reg")
      continue;
    // Predicates are constants here. They decide whether a product sets its sums or adds to them.
    if (name == "setp.ne.b32") {
      auto operands = operandsOf(rest);
      int64_t x, y;
      if (operands.size() != 3 || operands[1].getAsInteger(10, x) || operands[2].getAsInteger(10, y))
        return std::nullopt;
      predicates[operands[0]] = x != y;
      continue;
    }
    Instruction instruction;
    if (name == "fence.proxy.async.shared::cta" || name == "fence.proxy.async")
      instruction.kind = Instruction::ProxyFence;
    else if (name == "wgmma.fence.sync.aligned")
      instruction.kind = Instruction::Fence;
    else if (name == "wgmma.commit_group.sync.aligned")
      instruction.kind = Instruction::Commit;
    else if (name == "wgmma.wait_group.sync.aligned" && !rest.trim().getAsInteger(10, instruction.left))
      instruction.kind = Instruction::Wait;
    else if (name.consume_front("wgmma.mma_async.sync.aligned.m64n") &&
             readProduct(name, rest, predicates, instruction))
      instruction.kind = Instruction::Product;
    else
      return std::nullopt;
    all.push_back(std::move(instruction));
  }
  return all;
}

/// Looks for the name of the instruction in inline assembly.
bool pc::toolchain::usesWarpgroups(const Module &module) {
  for (const Function &function : module)
    for (const BasicBlock &block : function)
      for (const Instruction &instruction : block)
        if (auto *call = dyn_cast<CallBase>(&instruction))
          if (auto *assembly = dyn_cast<InlineAsm>(call->getCalledOperand());
              assembly && StringRef(assembly->getAsmString()).contains("wgmma."))
            return true;
  return false;
}
