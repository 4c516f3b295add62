//===- pc-lsp-server.cpp - Language server for pc programs ----------------===//
// It is MLIR's server, which finds an op by its location. In our programs, locations name modules of the model, so
// errors would be shown on line 1; therefore the editor's messages pass a filter that replaces locations by spaces.
//===----------------------------------------------------------------------===//
#include "pc/Driver/Registration.h"
#include "pc/Support/Source.h"
#include "pc/Support/ToolMain.h"
#include "pcrt/pcrt.h"

#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <string>
#include <thread>
#include <unistd.h>

namespace json = llvm::json;

/// The message with the locations in programs replaced by spaces.
static std::string filtered(std::string message) {
  llvm::Expected<json::Value> value = json::parse(message);
  if (!value) {
    llvm::consumeError(value.takeError());
    return message;
  }
  auto filter = [](json::Object *holder) {
    if (std::optional<llvm::StringRef> text = holder ? holder->getString("text") : std::nullopt)
      (*holder)["text"] = pc::withoutLocations(*text);
  };
  json::Object *root = value->getAsObject(), *params = root ? root->getObject("params") : nullptr;
  if (!params)
    return message;
  filter(params->getObject("textDocument"));
  if (json::Array *changes = params->getArray("contentChanges"))
    for (json::Value &change : *changes)
      filter(change.getAsObject());
  llvm::raw_string_ostream(message = "") << *value;
  return message;
}

/// Forwards messages ("Content-Length: N", other headers, an empty line, N bytes) until the input ends.
static void passOn(int from, int to) {
  llvm::raw_fd_ostream out(to, /*shouldClose=*/true);
  std::string pending;
  char chunk[1 << 16];
  for (ssize_t n; (n = read(from, chunk, sizeof chunk)) > 0;) {
    pending.append(chunk, n);
    for (size_t end; (end = pending.find("\r\n\r\n")) != std::string::npos; out.flush()) {
      size_t length = 0, begin = end + 4;
      llvm::StringRef header = llvm::StringRef(pending).take_front(end);
      (void)header.split("Content-Length:").second.split('\r').first.trim().getAsInteger(10, length);
      if (pending.size() - begin < length)
        break;
      std::string message = filtered(pending.substr(begin, length));
      pending.erase(0, begin + length);
      out << "Content-Length: " << message.size() << "\r\n\r\n" << message;
    }
  }
}

int main(int argc, char **argv) {
  pc::ToolMain tool(argc, argv, "pc-lsp-server");
  mlir::DialectRegistry registry;
  pc::registerDialects(registry);
  bool isFramed = llvm::none_of(llvm::ArrayRef(argv, argc), [](llvm::StringRef flag) {
    return flag.ltrim('-').starts_with("lit-test") || flag.contains("input-style") || flag.contains("help") ||
           flag.contains("version");
  });
  int ends[2];
  if (isFramed) {
    int editor = dup(STDIN_FILENO);
    if (editor < 0 || pipe(ends) || dup2(ends[0], STDIN_FILENO) < 0)
      return PCRT_RESOURCE;
    close(ends[0]);
    std::thread(passOn, editor, ends[1]).detach();
  }
  return mlir::failed(mlir::MlirLspServerMain(argc, argv, registry));
}
