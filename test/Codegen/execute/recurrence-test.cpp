//===- recurrence-test.cpp - Compiled recurrences against the interpreter -===//
// Tests recurrences and their gradients in odd sizes, in both directions, in f32 and with states in bf16. Factors have
// all dims of b, some or none, in any order.
//===----------------------------------------------------------------------===//
#include "../../Checks.h"
#include "InProcess.h"
#include "pc/Driver/Registration.h"

#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

using namespace mlir;

namespace {

/// The longest recurrences here add a hundred products of f32.
constexpr double tolerance = 5e-6;
/// Values are rounded to bf16 (2^-9), and the gradient of a factor is a sum of products of two of them.
constexpr double narrowTolerance = 0.02;

using Words = SmallVector<StringRef>;
Words wordsOf(StringRef dims) {
  Words words;
  llvm::SplitString(dims, words);
  return words;
}

/// Builds the text of one program.
class Text {
public:
  Text(const std::map<std::string, int64_t> &sizes) : sizes(sizes) {}

  std::string body;

  std::string type(StringRef dims, StringRef element) const {
    std::string text = "tensor<";
    for (StringRef dim : wordsOf(dims))
      text += std::to_string(sizes.at(dim.str())) + "x";
    return text + element.str() + ">";
  }
  /// Adds a parameter. If `type` is not f32, adds a cast to it.
  std::string parameter(StringRef name, StringRef dims, StringRef element) {
    if (dims.empty()) { // a box has dims
      std::string one = parameter(name, "one", "f32"), scalar = one + "_scalar";
      body += "  " + scalar + " = pc.einsum \"d -> \" " + one + " : (tensor<1xf32>) -> tensor<f32>\n";
      return scalar;
    }
    auto list = [&](auto f) { return "[" + llvm::join(llvm::map_range(wordsOf(dims), f), ", ") + "]"; };
    std::string shape = list([&](StringRef dim) { return std::to_string(sizes.at(dim.str())); });
    std::string value = ("%" + name).str(), wide = type(dims, "f32");
    body += "  " + value + " = pc.parameter \"" + name.str() + "\" dims " +
            list([](StringRef dim) { return "\"" + dim.str() + "\""; }) + " init <normal, 5.0e-01> source <\"" +
            name.str() + "\", shape = " + shape + ", start = " + list([](StringRef) { return std::string("0"); }) +
            ", size = " + shape + "> global " + shape + " layout <" + list([](StringRef) { return std::string("_"); }) +
            "> : " + wide + "\n";
    if (element == "f32")
      return value;
    body += "  " + value + "_narrow = pc.cast " + value + " : (" + wide + ") -> " + type(dims, element) + "\n";
    return value + "_narrow";
  }
  void output(StringRef value, StringRef dims, StringRef element) {
    auto list = [&](auto f) { return "[" + llvm::join(llvm::map_range(wordsOf(dims), f), ", ") + "]"; };
    body += ("  pc.output logits \"" + value.drop_front() + "\" " + value + " global ").str() +
            list([&](StringRef dim) { return std::to_string(sizes.at(dim.str())); }) + " layout <" +
            list([](StringRef) { return std::string("_"); }) + "> : " + type(dims, element) + "\n";
  }

private:
  const std::map<std::string, int64_t> &sizes;
};

void check(MLIRContext &context, StringRef a, StringRef b, StringRef along, bool reverse, StringRef element,
           const std::map<std::string, int64_t> &sizes) {
  Text text(sizes);
  std::string factors = text.parameter("a", a, "f32"), addends = text.parameter("b", b, element),
              gradient = text.parameter("dh", b, element);
  std::string spec =
      ("\"" + a + ", " + b + " -> " + b + "\" along \"" + along + "\"" + (reverse ? " reverse" : "")).str();
  std::string ofA = text.type(a, "f32"), ofB = text.type(b, element);
  text.body += "  %h = pc.recurrence " + spec + " " + factors + ", " + addends + " : (" + ofA + ", " + ofB + ") -> " +
               ofB + "\n  %da, %db = pc.recurrence_grad " + spec + " " + factors + ", %h, " + gradient + " : (" + ofA +
               ", " + ofB + ", " + ofB + ") -> (" + ofA + ", " + ofB + ")\n";
  text.output("%h", b, element);
  text.output("%da", a, "f32");
  text.output("%db", b, element);
  std::string program = "pc.mesh <one = 1>\npc.program \"recurrence\" batch 1 sequence 1 vocabulary 5 config \"{}\"\n"
                        "func.func @step() {\n" +
                        text.body + "  return\n}\n";
  std::string name = spec + " " + ofB;
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(program, ParserConfig(&context));
  if (!module) {
    expect(false, name + ": does not parse\n" + program);
    return;
  }
  Comparison c = compareWithInterpreter(*module, /*fuse=*/false);
  bool ok = c.error.empty() && c.difference <= (element == "f32" ? tolerance : narrowTolerance);
  if (!ok)
    llvm::outs() << "FAIL " << name << ": " << (c.error.empty() ? c.where + " differs by " : c.error + " ")
                 << llvm::format("%.2e", c.difference) << "\n";
  expect(ok, name);
}

} // namespace

int main() {
  llvm::outs().SetUnbuffered();
  DialectRegistry registry;
  pc::registerDialects(registry);
  pc::registerPasses();
  MLIRContext context(registry);
  struct Case {
    StringRef a, b, along;
  };
  const Case cases[] = {
      {"x s c", "x s c", "s"},     // all dims
      {"x s", "x s c", "s"},       // without the last dim
      {"x s c", "x s c n", "s"},   // also without the last of four dims
      {"x s n", "x s c n", "s"},   // without a dim in the middle
      {"s", "x s c", "s"},         // only the steps
      {"c", "x s c", "s"},         // not the steps
      {"x", "x s c n", "s"},       // without the steps and the dims after them
      {"", "x s c", "s"},          // one factor
      {"n s x c", "x s c n", "s"}, // in another order
      {"n x", "x s c n", "c"},     // and without the steps
      {"x s c", "x s c", "c"},     // steps side by side
      {"x s", "x s c", "c"},       // and a factor for all of them
      {"x c", "x s c", "x"},       // the first dim
      {"s", "s", "s"},             // one recurrence
  };
  for (int64_t last : {1, 5, 16, 33, 70, 150})
    for (const Case &one : cases)
      for (bool reverse : {false, true})
        check(context, one.a, one.b, one.along, reverse, last == 33 ? "bf16" : "f32",
              {{"one", 1}, {"x", 2}, {"s", last == 5 ? 1 : 9}, {"c", last}, {"n", last < 70 ? 6 : last / 35 - 1}});
  check(context, "x s", "x s c", "s", false, "f32", {{"x", 1}, {"s", 200}, {"c", 8}});
  return finishChecks();
}
