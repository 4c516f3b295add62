//===- pc-check-certificate.cpp - Checks the certificate of an executable -===//
// Reads the certificate and the tables of an executable from its file, without running it, and compares them with each
// other and with IR. It shares no code with the compiler except the dialect's parser and the proof. Exit codes: 0 it is
// as certified, 5 it is not, others as for pc-compile.
//===----------------------------------------------------------------------===//
#include "pc/Codegen/Fields.h"
#include "pc/IR/Stages.h"
#include "pc/Proof/Digest.h"
#include "pc/Proof/Proof.h"
#include "pc/Support/Diagnostics.h"
#include "pc/Support/Source.h"
#include "pc/Support/ToolMain.h"
#include "pcrt/pcrt.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/bit.h"
#include "llvm/Object/ELF.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/JSON.h"

#include <map>

namespace cl = llvm::cl;
namespace json = llvm::json;
using llvm::StringRef;

static cl::OptionCategory category("pc-check-certificate options");
static cl::list<std::string> inputs(cl::Positional, cl::desc("<program> [step.mlir] [IR of later phases]"),
                                    cl::cat(category));

static int fail(pcrt_status status, const llvm::Twine &why) {
  pc::errs() << "pc-check-certificate: " << (status == PCRT_VERIFICATION ? "refused: " : "error: ") << why << "\n";
  return status;
}

namespace {

/// The file of a position-independent executable, read by the addresses at which it is loaded. It borrows the bytes.
class Image {
public:
  static llvm::Expected<Image> read(StringRef bytes);

  /// The address of a symbol, or 0.
  uint64_t addressOf(StringRef symbol) const {
    auto it = symbols.find(symbol);
    return it == symbols.end() ? 0 : it->second;
  }
  /// The name of the function at an address.
  StringRef functionAt(uint64_t address) const {
    auto it = functions.find(address);
    return it == functions.end() ? "?" : it->second;
  }
  /// `size` bytes at an address that is loaded from the file; empty if there are fewer.
  StringRef bytesAt(uint64_t address, uint64_t size) const {
    for (const auto &[begin, bytes] : segments)
      if (address >= begin && address - begin <= bytes.size() && size <= bytes.size() - (address - begin))
        return bytes.substr(address - begin, size);
    return {};
  }
  /// The characters from an address to a zero.
  std::optional<StringRef> textAt(uint64_t address) const {
    for (const auto &[begin, bytes] : segments)
      if (address >= begin && address - begin < bytes.size()) {
        StringRef text = bytes.substr(address - begin);
        size_t end = text.find('\0');
        return end == StringRef::npos ? std::nullopt : std::optional(text.take_front(end));
      }
    return std::nullopt;
  }
  /// The value of the pointer at this address after the program is loaded; 0: null.
  uint64_t pointerAt(uint64_t address) const {
    auto it = pointers.find(address);
    return it == pointers.end() ? 0 : it->second;
  }

private:
  llvm::StringMap<uint64_t> symbols;
  std::map<uint64_t, StringRef> functions;
  std::vector<std::pair<uint64_t, StringRef>> segments;
  std::map<uint64_t, uint64_t> pointers;
};

} // namespace

llvm::Expected<Image> Image::read(StringRef bytes) {
  using Elf = llvm::object::ELF64LE;
  auto file = llvm::object::ELFFile<Elf>::create(bytes);
  if (!file)
    return file.takeError();
  Image image;
  auto headers = file->program_headers();
  if (!headers)
    return headers.takeError();
  for (const auto &header : *headers)
    if (header.p_type == llvm::ELF::PT_LOAD)
      image.segments.push_back({header.p_vaddr, bytes.substr(header.p_offset, header.p_filesz)});
  auto sections = file->sections();
  if (!sections)
    return sections.takeError();
  for (const auto &section : *sections) {
    if (section.sh_type == llvm::ELF::SHT_SYMTAB) {
      auto symbols = file->symbols(&section);
      auto names = file->getStringTableForSymtab(section);
      if (!symbols || !names)
        return symbols ? names.takeError() : symbols.takeError();
      for (const auto &symbol : *symbols) {
        auto name = symbol.getName(*names);
        if (!name)
          return name.takeError();
        if (symbol.st_shndx == llvm::ELF::SHN_UNDEF || !name->starts_with("pc_"))
          continue;
        image.symbols.try_emplace(*name, symbol.st_value);
        if (symbol.getType() == llvm::ELF::STT_FUNC)
          image.functions.try_emplace(symbol.st_value, *name);
      }
    }
    if (section.sh_type == llvm::ELF::SHT_RELA) {
      auto relocations = file->relas(section);
      if (!relocations)
        return relocations.takeError();
      for (const auto &relocation : *relocations)
        if (relocation.getType(/*isMips64EL=*/false) == llvm::ELF::R_X86_64_RELATIVE)
          image.pointers[relocation.r_offset] = static_cast<uint64_t>(relocation.r_addend);
    }
  }
  return image;
}

namespace {

/// The tables of an executable: their bytes as one text for the fingerprint, and the moves of every stage.
class Tables {
public:
  explicit Tables(const Image &image) : image(image) {}

  /// Reads the tables; false if they are incomplete.
  bool read() {
    uint64_t at = image.addressOf("pc_program");
    for (int stage = 0; at && stage < (1 << 16); ++stage) {
      pcrt_program p{};
      if (!readRow(at, p))
        return false;
      auto pointer = [&](auto pcrt_program::*field) {
        return image.pointerAt(at + (reinterpret_cast<char *>(&(p.*field)) - reinterpret_cast<char *>(&p)));
      };
      for (int64_t number :
           {int64_t(p.abi_version), p.arena_bytes, int64_t(p.target), int64_t(p.num_tickets), p.workspace_offset,
            p.workspace_bytes, int64_t(p.num_stages), int64_t(p.stage_axis), int64_t(p.stage), p.json_bytes})
        add(number);
      for (auto function : {&pcrt_program::step, &pcrt_program::evaluate, &pcrt_program::round})
        add(pointer(function) ? image.functionAt(pointer(function)) : "");
      std::vector<pcrt_group> groups;
      std::vector<pcrt_move_desc> rows;
      std::vector<int64_t> sizes;
      std::vector<StringRef> axes;
      uint64_t devices = pointer(&pcrt_program::device_kernels);
      std::optional<StringRef> description = image.textAt(pointer(&pcrt_program::json));
      if (!table(pointer(&pcrt_program::mesh_sizes), p.num_mesh_axes, &sizes) ||
          !names(pointer(&pcrt_program::mesh_names), p.num_mesh_axes, axes) ||
          !table(pointer(&pcrt_program::groups), p.num_groups, &groups) ||
          !table<pcrt_kernel>(pointer(&pcrt_program::kernels), p.num_kernels) ||
          !table<pcrt_gemm_desc>(pointer(&pcrt_program::gemms), p.num_gemms) ||
          !table(pointer(&pcrt_program::moves), p.num_moves, &rows) ||
          !table<pcrt_device_kernel>(devices, devices ? p.num_kernels : 0) ||
          !table<pcrt_attention_desc>(pointer(&pcrt_program::attentions), p.num_attentions) ||
          !table<pcrt_flow>(pointer(&pcrt_program::flows), p.num_flows) || !description)
        return false;
      for (int64_t i = 0; i < p.num_images; ++i) {
        uint64_t place = pointer(&pcrt_program::images) + static_cast<uint64_t>(i) * sizeof(pcrt_image);
        pcrt_image image_row{};
        if (!readRow(place, image_row))
          return false;
        for (int64_t number : {image_row.kind, image_row.arch, image_row.arch_specific})
          add(number);
        add(image.bytesAt(image.pointerAt(place + offsetof(pcrt_image, data)), static_cast<uint64_t>(image_row.bytes)));
      }
      add(*description);
      order(rows, groups, axes);
      at = pointer(&pcrt_program::next_stage);
    }
    return !moves.empty();
  }

  std::string bytes;
  std::vector<std::vector<std::string>> moves; ///< the moves of each stage, in order

private:
  void add(int64_t number) { bytes.append(reinterpret_cast<const char *>(&number), sizeof number); }
  void add(StringRef text) {
    add(static_cast<int64_t>(text.size()));
    bytes += text;
  }

  /// Reads one row; pointers without a relocation must be null.
  template <typename T> bool readRow(uint64_t at, T &row) {
    StringRef from = image.bytesAt(at, sizeof row);
    if (from.size() != sizeof row)
      return false;
    memcpy(&row, from.data(), sizeof row);
    bool ok = true;
    pc::forEachField(row, [&](const auto &field) {
      if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(field)>>)
        ok &= !field || image.pointerAt(at + (reinterpret_cast<const char *>(&field) - reinterpret_cast<char *>(&row)));
    });
    return ok;
  }

  /// Adds the rows of a table to the text, and returns them in `rows`.
  template <typename T> bool table(uint64_t at, int64_t count, std::vector<T> *rows = nullptr) {
    add(count);
    for (int64_t i = 0; i < count; ++i) {
      T row{};
      uint64_t place = at + static_cast<uint64_t>(i) * sizeof row;
      if (!readRow(place, row))
        return false;
      bool ok = true;
      pc::forEachField(row, [&](const auto &field) {
        using FieldT = std::remove_cvref_t<decltype(field)>;
        uint64_t target =
            image.pointerAt(place + (reinterpret_cast<const char *>(&field) - reinterpret_cast<const char *>(&row)));
        if constexpr (std::is_same_v<FieldT, const char *>) {
          std::optional<StringRef> text = target ? image.textAt(target) : StringRef();
          ok = ok && text;
          add(text.value_or(""));
        } else if constexpr (std::is_pointer_v<FieldT>) {
          add(target ? image.functionAt(target) : "");
        } else if constexpr (std::is_same_v<FieldT, float>) {
          add(static_cast<int64_t>(llvm::bit_cast<int32_t>(field)));
        } else {
          add(static_cast<int64_t>(field));
        }
      });
      if (!ok)
        return false;
      if (rows)
        rows->push_back(row);
    }
    return true;
  }

  bool names(uint64_t at, int64_t count, std::vector<StringRef> &texts) {
    add(count);
    for (int64_t i = 0; i < count; ++i) {
      std::optional<StringRef> text = image.textAt(image.pointerAt(at + static_cast<uint64_t>(i) * sizeof(char *)));
      if (!text)
        return false;
      add(*text);
      texts.push_back(*text);
    }
    return true;
  }

  /// Lists the moves in the form of pc::collectivesOf.
  void order(const std::vector<pcrt_move_desc> &rows, const std::vector<pcrt_group> &groups,
             const std::vector<StringRef> &axes) {
    auto axesOf = [&](int64_t group) {
      std::string text;
      for (int i = 0; group >= 0 && group < static_cast<int64_t>(groups.size()) && i < groups[group].num_axes && i < 8;
           ++i) {
        int32_t axis = groups[group].axes[i];
        text += (i ? "," : "") + (axis >= 0 && axis < static_cast<int64_t>(axes.size()) ? axes[axis].str() : "?");
      }
      return text;
    };
    std::vector<std::string> &texts = moves.emplace_back();
    for (const pcrt_move_desc &row : rows) {
      const pcrt_move_facts *facts = pcrt_facts_of_move(row.kind);
      std::string &text = texts.emplace_back();
      llvm::raw_string_ostream(text) << (facts ? facts->name : "?") << " on " << axesOf(row.group) << " "
                                     << (row.dtype == PCRT_F32    ? "f32"
                                         : row.dtype == PCRT_BF16 ? "bf16"
                                         : row.dtype == PCRT_I8   ? "i8"
                                                                  : "i32")
                                     << " " << row.outer << "x" << row.extent << "x" << row.inner << "x" << row.middle
                                     << "x" << row.extent2 << " " << row.reduction << " shift " << row.shift << " with "
                                     << axesOf(row.with - 1);
    }
  }

  const Image &image;
};

/// The certificate, and which of its claims have been confirmed.
class Certificate {
public:
  /// Reads the certificate; returns why the text is not one, or contradicts itself, and "" otherwise.
  std::string read(StringRef text) {
    auto parsed = json::parse(text);
    if (!parsed)
      return llvm::toString(parsed.takeError());
    if (!parsed->getAsObject())
      return "it is not a JSON object";
    object = std::move(*parsed->getAsObject());
    json::Object rest = object;
    rest.erase("sum");
    std::string all;
    llvm::raw_string_ostream(all) << json::Value(std::move(rest));
    if (object.getInteger("format") != 2 || this->text("sum") != pc::digestOf(all))
      return "its checksum does not match";
    std::string chain;
    for (const json::Object *phase : list("phases")) {
      StringRef name = field(phase, "phase"), program = field(phase, "program"), how = field(phase, "how");
      chain = pc::digestOf((chain + " " + name + " " + program + " " + how).str());
      if (chain != field(phase, "chain"))
        return ("the chain breaks at phase '" + name + "'").str();
    }
    return "";
  }

  bool readBack() const { return object.getBoolean("read_back").value_or(false); }
  StringRef text(StringRef key) const { return object.getString(key).value_or(""); }
  static StringRef field(const json::Object *entry, StringRef key) {
    return entry ? entry->getString(key).value_or("") : "";
  }
  std::vector<const json::Object *> list(StringRef key) const {
    std::vector<const json::Object *> entries;
    if (const json::Array *array = object.getArray(key))
      for (const json::Value &entry : *array)
        entries.push_back(entry.getAsObject());
    return entries;
  }
  const json::Object *phaseOf(StringRef program) const {
    for (const json::Object *phase : list("phases"))
      if (field(phase, "program") == program)
        return phase;
    return nullptr;
  }

  /// Describes how the order of the moves of a stage differs from the certificate; "" if it does not.
  std::string whyOtherOrder(const std::vector<std::vector<std::string>> &moves) const {
    auto stages = list("collectives");
    if (stages.size() != moves.size())
      return "it is for a different number of stages";
    for (auto [stage, order] : llvm::zip_equal(stages, moves)) {
      bool same = stage && stage->getInteger("count") == static_cast<int64_t>(order.size()) &&
                  field(stage, "order") == pc::digestOf(llvm::join(order, "\n"));
      if (!same)
        return "the collectives of stage " + std::to_string(&stage - stages.data()) +
               " are different ones, or in a different order";
    }
    return "";
  }

private:
  json::Object object;
};

} // namespace

/// Compares a program with the certificate, and a later phase with the step program if that was given.
static int checkProgram(const std::string &path, const Certificate &certificate, mlir::MLIRContext &context,
                        pc::Proof &proof, bool &hasStep) {
  llvm::SourceMgr sources;
  pc::ToolDiagnostics diagnostics("pc-check-certificate", sources, &context);
  mlir::OwningOpRef<mlir::ModuleOp> module = pc::parseProgram(path, sources, &context);
  if (!module)
    return PCRT_BAD_INPUT;
  const json::Object *phase = certificate.phaseOf(pc::digestOf(*module));
  if (!phase)
    return fail(PCRT_VERIFICATION, path + " is not one of the programs from which the executable was made");
  StringRef name = Certificate::field(phase, "phase"), how = Certificate::field(phase, "how");
  std::string found;
  if (name == "step") {
    if (pc::Proof::fingerprint(*module) != certificate.text("step"))
      return fail(PCRT_VERIFICATION, path + " does not compute the step that the certificate describes");
    if (failed(proof.begin(*module)))
      return PCRT_VERIFICATION;
    hasStep = true;
  } else if (hasStep) {
    if (failed(proof.prove(*module, name)))
      return PCRT_VERIFICATION;
    found = ", proved to compute the step";
  }
  if (name == "planned") {
    std::vector<std::vector<std::string>> moves;
    for (mlir::ModuleOp stage : pc::programsOf(*module))
      moves.push_back(pc::collectivesOf(stage));
    if (std::string why = certificate.whyOtherOrder(moves); !why.empty())
      return fail(PCRT_VERIFICATION, path + ": " + why);
  }
  llvm::outs() << path << ": phase '" << name << "' (" << how << " when it was compiled)" << found << "\n";
  return PCRT_OK;
}

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-check-certificate");
  cl::HideUnrelatedOptions(category);
  std::string message;
  llvm::raw_string_ostream errors(message);
  if (!cl::ParseCommandLineOptions(
          argc, argv,
          "pc-check-certificate: checks that an executable matches the programs from which it was made\n\nCompares its "
          "certificate with its tables, and with IR that pc-compile printed for it. If the step program\ncomes first, "
          "later programs are proved to compute the same. Exit code 0: accepted; 5: refused.\n",
          &errors)) {
    pc::errs() << message;
    return PCRT_USAGE;
  }
  if (inputs.empty())
    return fail(PCRT_USAGE, "the program is missing; give an executable made by pc-compile");
  std::string why;
  std::unique_ptr<llvm::MemoryBuffer> file = pc::readFile(inputs[0], why);
  if (!file)
    return fail(PCRT_BAD_INPUT, inputs[0] + " cannot be read: " + why);
  llvm::Expected<Image> image = Image::read(file->getBuffer());
  if (!image)
    return fail(PCRT_BAD_INPUT, inputs[0] + " is not an executable: " + llvm::toString(image.takeError()));
  std::optional<StringRef> text = image->textAt(image->addressOf("pc_certificate"));
  if (!image->addressOf("pc_certificate") || !text)
    return fail(PCRT_BAD_INPUT, inputs[0] + " has no certificate; compile it again with --verify=full");
  Certificate certificate;
  if (why = certificate.read(*text); !why.empty())
    return fail(PCRT_VERIFICATION, "the certificate of " + inputs[0] + " is broken: " + why);
  Tables tables(*image);
  if (!tables.read() || pc::digestOf(tables.bytes) != certificate.text("tables"))
    return fail(PCRT_VERIFICATION, "the tables of " + inputs[0] + " do not match its certificate");
  if (why = certificate.whyOtherOrder(tables.moves); !why.empty())
    return fail(PCRT_VERIFICATION, inputs[0] + ": " + why);
  llvm::outs() << inputs[0] << ": certificate " << certificate.text("sum") << ", plan " << certificate.text("plan")
               << "; its tables match, " << (certificate.readBack() ? "and were" : "but were not")
               << " compared with the planned program\n";

  mlir::DialectRegistry registry;
  registry.insert<pc::PCDialect, mlir::func::FuncDialect>();
  mlir::MLIRContext context(registry);
  pc::Proof proof;
  bool hasStep = false;
  for (const std::string &path : llvm::drop_begin(inputs))
    if (int status = checkProgram(path, certificate, context, proof, hasStep))
      return status;
  return PCRT_OK;
}
