//===- Parser.cpp - Reads PTX text ----------------------------------------===//
// Follows the PTX ISA, "Syntax" and "State Spaces, Types, and Variables". It accepts what NVPTX writes for our kernels
// and refuses the rest by line: functions, local memory (spills), textures, debugging information.
//===----------------------------------------------------------------------===//
#include "Program.h"

#include <algorithm>
#include <bit>
#include <cstring>

using namespace pc::ptx;

namespace {

struct Token {
  std::string text; ///< a word, or one character of punctuation; empty at the end
  int line;
};

std::vector<Token> tokenize(const std::string &text) {
  std::vector<Token> tokens;
  int line = 1;
  auto isWord = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || strchr("_.$%", c); };
  for (size_t i = 0; i < text.size();) {
    char c = text[i];
    if (c == '\n')
      ++line;
    if (c == '/' && text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    size_t end = i + 1;
    if (isWord(c) || (c == '-' && isWord(text[end])))
      while (end < text.size() && (isWord(text[end]) || text.compare(end, 2, "::") == 0))
        end += text[end] == ':' ? 2 : 1;
    else if (c == '"')
      end = std::min(text.find('"', end), text.size() - 1) + 1;
    if (!std::isspace(static_cast<unsigned char>(c)))
      tokens.push_back({text.substr(i, end - i), line});
    i = end;
  }
  tokens.push_back({"", line});
  return tokens;
}

/// A type by its name without the dot; kind 0 if it is none.
Type typeOf(std::string_view name) {
  static const std::map<std::string_view, Type> types = {
      {"u8", {'u', 8}},    {"u16", {'u', 16}},   {"u32", {'u', 32}},   {"u64", {'u', 64}},   {"s8", {'s', 8}},
      {"s16", {'s', 16}},  {"s32", {'s', 32}},   {"s64", {'s', 64}},   {"b8", {'b', 8}},     {"b16", {'b', 16}},
      {"b32", {'b', 32}},  {"b64", {'b', 64}},   {"f32", {'f', 32}},   {"f32x2", {'f', 64}}, {"pred", {'p', 1}},
      {"bf16", {'h', 16}}, {"b128", {'b', 128}}, {"bf16x2", {'h', 32}}};
  auto found = types.find(name);
  return found == types.end() ? Type() : found->second;
}

constexpr uint64_t sharedBase = 1024; ///< Addresses below stay unused, so that null is never valid.
constexpr uint64_t sharedGap = 64;    ///< Between variables, so that an access past one is found.

class Parser {
public:
  explicit Parser(const std::string &text) : tokens(tokenize(text)) {}
  Module run();

private:
  [[noreturn]] void fail(const std::string &why) const {
    throw Fault{"line " + std::to_string(tokens[at].line) + ": " + why};
  }
  const std::string &peek() const { return tokens[at].text; }
  std::string take() { return tokens[at + 1 < tokens.size() ? at++ : at].text; }
  bool accept(std::string_view text) { return peek() == text && (++at, true); }
  void expect(std::string_view text) {
    if (!accept(text))
      fail("expected '" + std::string(text) + "', not '" + peek() + "'");
  }
  int64_t integer();
  Type type();

  void variable(bool external);
  void sharedVariable(const std::string &name, uint64_t align, uint64_t bytes);
  void placeDynamic(uint64_t end);
  void initialize(std::vector<uint64_t> &words, Type element, int64_t count);
  void kernelText();
  void parameters();
  void directives();
  void body();
  void registers();
  void instruction();
  void decode(Instruction &instruction, const std::string &opcode);
  Operand operand();
  void value(Operand &into);
  int constant(uint64_t value);
  int findRegister(const std::string &name) const;

  std::vector<Token> tokens;
  size_t at = 0;
  Module module;
  std::map<std::string, uint64_t> dynamicShared; ///< external shared variables by name, and their alignment

  // The members below belong to the kernel that is being read.
  Kernel *kernel = nullptr;
  std::vector<std::map<std::string, int>> scopes; ///< registers by name, the innermost scope last
  std::map<std::string, int> labels;
  std::map<std::string, uint64_t> addresses;         ///< of parameters and shared variables
  std::vector<std::pair<int, std::string>> branches; ///< instructions whose targets are not known yet
  std::map<uint64_t, int> constantSlots;
};

int64_t Parser::integer() {
  std::string word = take();
  char *end = nullptr;
  auto value = static_cast<int64_t>(word[0] == '-' ? strtoll(word.c_str(), &end, 0) : strtoull(word.c_str(), &end, 0));
  if (*end && strcmp(end, "U") != 0)
    fail("expected an integer, not '" + word + "'");
  return value;
}

Type Parser::type() {
  std::string word = take();
  Type found = word[0] == '.' ? typeOf(std::string_view(word).substr(1)) : Type();
  if (!found.kind)
    fail("'" + word + "' is not a type that the reader knows");
  return found;
}

Module Parser::run() {
  while (!peek().empty()) {
    bool external = false;
    while (peek() == ".visible" || peek() == ".extern" || peek() == ".weak")
      external |= take() == ".extern";
    if (accept(".version") || accept(".address_size")) {
      take();
    } else if (accept(".target")) {
      module.target = take();
    } else if (accept(".entry")) {
      kernelText();
    } else {
      variable(external);
    }
  }
  return std::move(module);
}

/// [.align N] .type name [ [count] ] [= value or list] ;
void Parser::variable(bool external) {
  std::string space = take();
  bool inShared = space == ".shared";
  if (!inShared && space != ".global" && space != ".const")
    fail("'" + space + "' is not a declaration that the reader knows");
  uint64_t align = accept(".align") ? uint64_t(integer()) : 0;
  Type element = type();
  std::string name = take();
  int64_t count = 1;
  if (accept("[")) {
    count = peek() == "]" ? 0 : integer();
    expect("]");
  }
  uint64_t bytes = uint64_t(count) * element.bits / 8;
  if (inShared && external && !bytes) {
    dynamicShared[name] = std::max<uint64_t>(align, 16);
  } else if (inShared) {
    sharedVariable(name, std::max<uint64_t>(align, element.bits / 8), bytes);
  } else {
    auto &words = module.globals[name];
    words.resize((bytes + 7) / 8 + 2); // 16 more, for the alignment of the address
    if (accept("="))
      initialize(words, element, count);
  }
  expect(";");
}

/// Static variables come first and the launch's own bytes last, as on a device.
void Parser::sharedVariable(const std::string &name, uint64_t align, uint64_t bytes) {
  if (!kernel || !kernel->code.empty() || !bytes)
    fail("the shared variable " + name + " has no size, or is not at the beginning of a kernel");
  uint64_t end = sharedBase;
  if (!kernel->shared.empty())
    end = kernel->shared.back().address + kernel->shared.back().bytes + sharedGap;
  kernel->shared.push_back({(end + align - 1) / align * align, bytes});
  addresses[name] = kernel->shared.back().address;
  placeDynamic(kernel->shared.back().address + bytes);
}

/// The launch's own bytes begin at or after `end`.
void Parser::placeDynamic(uint64_t end) {
  uint64_t most = 16;
  for (auto &[name, align] : dynamicShared)
    most = std::max(most, align);
  kernel->dynamicShared = (end + most - 1) / most * most;
  for (auto &[name, align] : dynamicShared)
    addresses[name] = kernel->dynamicShared;
}

void Parser::initialize(std::vector<uint64_t> &words, Type element, int64_t count) {
  auto *bytes = reinterpret_cast<char *>(words.data());
  bytes += -reinterpret_cast<uintptr_t>(bytes) & 15;
  bool list = accept("{");
  for (int64_t i = 0; i < count; ++i) {
    int64_t one = integer();
    memcpy(bytes + i * element.bits / 8, &one, element.bits / 8);
    if (!list || !accept(","))
      break;
  }
  if (list)
    expect("}");
}

void Parser::kernelText() {
  auto made = std::make_unique<Kernel>();
  kernel = made.get();
  kernel->name = take();
  scopes.assign(1, {});
  labels.clear(), addresses.clear(), branches.clear(), constantSlots.clear();
  placeDynamic(sharedBase);
  parameters();
  directives();
  body();
  for (auto &[index, label] : branches) {
    if (!labels.count(label))
      throw Fault{kernel->name + ": there is no label " + label};
    kernel->code[index].target = labels[label];
  }
  findJoins(*kernel);
  module.kernels[kernel->name] = std::move(made);
}

/// ( .param [.align N] .type [.ptr [.space] .align N] name [ [bytes] ], ... )
void Parser::parameters() {
  uint64_t end = 0;
  expect("(");
  while (!accept(")")) {
    expect(".param");
    if (accept(".align"))
      integer();
    Type element = type();
    if (accept(".ptr")) {
      accept(".global");
      if (accept(".align"))
        integer();
    }
    std::string name = take();
    int64_t count = 1;
    if (accept("[")) {
      count = integer();
      expect("]");
    }
    uint64_t bytes = uint64_t(count) * element.bits / 8;
    kernel->parameters.push_back({end, bytes});
    addresses[name] = parameterWindow + end;
    end = (end + bytes + 15) / 16 * 16;
    accept(",");
  }
}

void Parser::directives() {
  while (peek() != "{") {
    std::string name = take();
    std::array<int, 3> numbers = {1, 1, 1};
    int count = 0;
    do
      numbers[count++] = int(integer());
    while (count < 3 && accept(","));
    if (name == ".reqntid" || name == ".maxntid") {
      kernel->threads = numbers;
      kernel->exactThreads = name == ".reqntid";
    } else if (name != ".minnctapersm" && name != ".maxnreg") {
      fail("'" + name + "' is not a directive that the reader knows");
    }
  }
}

void Parser::body() {
  size_t outside = scopes.size();
  expect("{");
  scopes.emplace_back();
  while (scopes.size() > outside) {
    if (accept("{")) {
      scopes.emplace_back();
    } else if (accept("}")) {
      scopes.pop_back();
    } else if (accept(";")) {
    } else if (peek() == ".reg") {
      registers();
    } else if (peek() == ".shared") {
      variable(false);
    } else if (accept(".pragma")) {
      take();
      expect(";");
    } else if (peek()[0] == '.' || peek().empty()) {
      fail("'" + peek() + "' is not a statement that the reader knows");
    } else if (tokens[at + 1].text == ":") {
      labels[take()] = int(kernel->code.size());
      expect(":");
    } else {
      instruction();
    }
  }
}

/// .reg .type name, name<count>, ... ;
void Parser::registers() {
  expect(".reg");
  int bits = type().bits;
  do {
    std::string name = take();
    int64_t count = -1;
    if (accept("<")) {
      count = integer();
      expect(">");
    }
    for (int64_t i = 0; i < std::max<int64_t>(count, 1); ++i) {
      scopes.back()[count < 0 ? name : name + std::to_string(i)] = int(kernel->registerBits.size());
      kernel->registerBits.push_back(bits);
    }
  } while (accept(","));
  expect(";");
}

int Parser::constant(uint64_t value) {
  auto [slot, isNew] = constantSlots.try_emplace(value, -1 - int(kernel->constants.size()));
  if (isNew)
    kernel->constants.emplace_back().fill(value);
  return slot->second;
}

int Parser::findRegister(const std::string &name) const {
  for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope)
    if (auto found = scope->find(name); found != scope->end())
      return found->second;
  return -1;
}

/// A register, a special register, a number, or the name of a variable. 0f and 0d begin the bits of a float.
void Parser::value(Operand &into) {
  static const char *const specialNames[] = {"%tid.x",    "%tid.y",    "%tid.z",   "%ntid.x",  "%ntid.y",
                                             "%ntid.z",   "%ctaid.x",  "%ctaid.y", "%ctaid.z", "%nctaid.x",
                                             "%nctaid.y", "%nctaid.z", "%laneid"};
  const std::string &word = peek();
  into.negated |= accept("!");
  if (word == "_" && findRegister(word) < 0) { // a result that the kernel does not use
    scopes.front()["_"] = int(kernel->registerBits.size());
    kernel->registerBits.push_back(64);
  }
  if (int found = findRegister(word); found >= 0) {
    into.slots.push_back(found);
  } else if (std::find(std::begin(specialNames), std::end(specialNames), word) != std::end(specialNames)) {
    auto [slot, isNew] = kernel->specials.try_emplace(word, int(kernel->registerBits.size()));
    if (isNew)
      kernel->registerBits.push_back(32);
    into.slots.push_back(slot->second);
  } else if (word.starts_with("0f") || word.starts_with("0d")) {
    into.slots.push_back(constant(strtoull(word.c_str() + 2, nullptr, 16)));
  } else if (std::isdigit(static_cast<unsigned char>(word[0])) || word[0] == '-') {
    into.slots.push_back(constant(uint64_t(integer())));
    return;
  } else if (auto shared = addresses.find(word); shared != addresses.end()) {
    into.slots.push_back(constant(shared->second));
  } else if (auto global = module.globals.find(word); global != module.globals.end()) {
    auto address = reinterpret_cast<uint64_t>(global->second.data());
    into.slots.push_back(constant((address + 15) / 16 * 16));
  } else {
    fail("'" + word + "' is neither a register nor a variable");
  }
  take();
}

Operand Parser::operand() {
  Operand result;
  if (accept("{")) {
    do
      value(result);
    while (accept(","));
    expect("}");
  } else if (accept("[")) {
    result.address = true;
    value(result);
    if (accept("+"))
      result.offset = integer();
    expect("]");
  } else {
    value(result);
    if (accept("|")) // a second result
      value(result);
  }
  return result;
}

void Parser::instruction() {
  Instruction instruction;
  size_t first = at;
  instruction.line = tokens[at].line;
  if (accept("@")) {
    instruction.guardNegated = accept("!");
    instruction.guard = findRegister(take());
    if (instruction.guard < 0 || kernel->registerBits[instruction.guard] != 1)
      fail("the guard is not a predicate");
  }
  std::string opcode = take();
  if (opcode == "bra" || opcode == "bra.uni") {
    instruction.flow = Instruction::Branch;
    instruction.results = 0;
    branches.emplace_back(int(kernel->code.size()), take());
    if (opcode == "bra.uni" && instruction.guard >= 0)
      fail("the reader does not know a bra.uni with a guard");
  } else {
    for (bool more = peek() != ";"; more; more = accept(","))
      instruction.operands.push_back(operand());
    decode(instruction, opcode);
  }
  expect(";");
  for (size_t i = first; i < at - 1; ++i)
    instruction.text +=
        (i == first || strchr(",]}|", tokens[i].text[0]) || strchr("[{@!|", tokens[i - 1].text[0]) ? "" : " ") +
        tokens[i].text;
  kernel->code.push_back(std::move(instruction));
}

void Parser::decode(Instruction &instruction, const std::string &opcode) {
  try {
    Opcode suffixes(opcode);
    for (const DecoderTable *table :
         {&scalarInstructions(), &memoryInstructions(), &warpInstructions(), &warpgroupInstructions()})
      if (auto row = table->find(suffixes.name()); row != table->end()) {
        row->second(suffixes, instruction);
        if (!suffixes.done())
          suffixes.refuse();
        for (int i = 0; i < instruction.results; ++i)
          for (int slot : instruction.operands.at(i).slots)
            if (slot < 0)
              fail("a result of " + opcode + " is a constant");
        return;
      }
    suffixes.refuse();
  } catch (const Fault &fault) {
    fail(fault.text);
  }
}

} // namespace

Module pc::ptx::parse(const std::string &text) { return Parser(text).run(); }

Opcode::Opcode(std::string_view text) : text(text) {
  for (size_t from = 0; from <= text.size();) {
    size_t dot = std::min(text.find('.', from), text.size());
    parts.emplace_back(text.substr(from, dot - from));
    from = dot + 1;
  }
}

bool Opcode::take(std::string_view suffix) {
  bool found = !done() && parts[next] == suffix;
  next += found;
  return found;
}

int Opcode::takeOne(std::initializer_list<std::string_view> suffixes) {
  for (auto suffix = suffixes.begin(); suffix != suffixes.end(); ++suffix)
    if (take(*suffix))
      return int(suffix - suffixes.begin());
  return -1;
}

void Opcode::need(std::string_view suffix) {
  if (!take(suffix))
    refuse();
}

Type Opcode::type() {
  Type found = done() ? Type() : typeOf(parts[next]);
  if (!found.kind)
    refuse();
  ++next;
  return found;
}

int Opcode::number(std::string_view prefix) {
  if (done() || !parts[next].starts_with(prefix) || parts[next].size() == prefix.size())
    return -1;
  char *end = nullptr;
  long found = strtol(parts[next].c_str() + prefix.size(), &end, 10);
  if (*end)
    return -1;
  ++next;
  return int(found);
}

void Opcode::refuse() const { throw Fault{"the reader does not know the instruction " + text}; }
