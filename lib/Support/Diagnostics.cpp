//===- Diagnostics.cpp - How the command-line tools print errors ------------------------===//
// Errors, warnings and remarks of all tools pass through here. Control characters and invalid UTF-8 from files are
// escaped, so that a file cannot write to the terminal. Colors of LLVM's printers still work.
//===-----------------------------------------------------------------------------===//
#include "pc/Support/Diagnostics.h"
#include "pc/IR/PC.h"

#include "mlir/IR/Location.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"

using namespace mlir;

/// The length in bytes of the first character of `text` if it may be printed, otherwise 0.
static size_t printable(StringRef text) {
  const auto *bytes = text.bytes_begin();
  if (bytes[0] < 0x80)
    return llvm::isPrint(text[0]) ? 1 : 0;
  size_t length = llvm::getNumBytesForUTF8(bytes[0]);
  bool isControl = bytes[0] == 0xc2 && text.size() > 1 && bytes[1] < 0xa0; // a character of C1
  return length <= text.size() && llvm::isLegalUTF8Sequence(bytes, bytes + length) && !isControl ? length : 0;
}

/// Bytes that are neither printable nor in `kept` become \XX, so that text from a file cannot control the terminal.
static void escape(StringRef text, StringRef kept, llvm::raw_ostream &os) {
  while (!text.empty()) {
    size_t length = kept.contains(text[0]) ? 1 : printable(text);
    if (length)
      os << text.take_front(length);
    else
      os << '\\' << llvm::hexdigit(uint8_t(text[0]) / 16) << llvm::hexdigit(uint8_t(text[0]) % 16);
    text = text.drop_front(std::max<size_t>(length, 1));
  }
}

std::string pc::escaped(StringRef text) {
  std::string result;
  llvm::raw_string_ostream os(result);
  escape(text, "", os);
  return result;
}

namespace {
/// Writes to standard error with control characters escaped; colors are passed on unchanged.
class EscapedErrors : public llvm::raw_ostream {
public:
  EscapedErrors() : raw_ostream(/*unbuffered=*/true) {}
  raw_ostream &changeColor(enum Colors color, bool bold, bool background) override {
    to.changeColor(color, bold, background);
    return *this;
  }
  raw_ostream &resetColor() override {
    to.resetColor();
    return *this;
  }
  bool is_displayed() const override { return to.is_displayed(); }
  bool has_colors() const override { return to.has_colors(); }

private:
  void write_impl(const char *text, size_t size) override { escape(StringRef(text, size), "\n\t", to); }
  uint64_t current_pos() const override { return 0; }
  llvm::raw_ostream &to = llvm::errs();
};
} // namespace

llvm::raw_ostream &pc::errs() {
  static EscapedErrors stream;
  return stream;
}

/// A diagnostic handler that escapes the text of a message and passes it to the next handler.
static LogicalResult escapeMessage(Diagnostic &diagnostic) {
  auto write = [](Diagnostic &from, Diagnostic &to) {
    std::string text;
    llvm::raw_string_ostream os(text);
    escape(from.str(), "\n\t", os);
    to << text;
  };
  Diagnostic result(diagnostic.getLocation(), diagnostic.getSeverity());
  write(diagnostic, result);
  for (Diagnostic &note : diagnostic.getNotes())
    write(note, result.attachNote(note.getLocation()));
  diagnostic = std::move(result);
  return failure();
}

void pc::escapeDiagnostics(DialectRegistry &registry) {
  registry.addExtension(
      +[](MLIRContext *context, PCDialect *) { context->getDiagEngine().registerHandler(escapeMessage); });
}

/// The word that begins a diagnostic of this severity.
static StringRef severityName(DiagnosticSeverity severity) {
  switch (severity) {
  case DiagnosticSeverity::Error:
    return "error";
  case DiagnosticSeverity::Warning:
    return "warning";
  case DiagnosticSeverity::Note:
    return "note";
  case DiagnosticSeverity::Remark:
    return "remark";
  }
  return "error";
}

/// Two handlers: one shows the line of the source, the other prints diagnostics without a line. The one that was
/// registered last is asked first.
pc::ToolDiagnostics::ToolDiagnostics(StringRef tool, llvm::SourceMgr &sources, MLIRContext *context)
    : inSource(sources, context, pc::errs()),
      plain(context, [tool = tool.str()](Diagnostic &diagnostic) -> LogicalResult {
        auto place = diagnostic.getLocation()->findInstanceOf<FileLineColLoc>();
        if (place && place.getLine())
          return failure(); // the next handler shows the line
        auto print = [&](Diagnostic &d) {
          pc::errs() << (place ? escaped(place.getFilename().getValue()) : tool) << ": "
                     << severityName(d.getSeverity()) << ": " << d.str() << "\n";
        };
        print(diagnostic);
        for (Diagnostic &note : diagnostic.getNotes())
          print(note);
        return success();
      }) {
  context->printOpOnDiagnostic(false);
}
