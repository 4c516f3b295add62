//===- Trace.cpp - Writes a predicted timeline as a trace ----------------------------------===//
// Writes a predicted timeline as Chrome trace events (one process per stage, times in microseconds), under the key
// "traceEvents" of a report. Viewers such as Perfetto read it.
//===-----------------------------------------------------------------------------===//
#include "pc/Cost/Simulate.h"

#include "llvm/Support/FormatVariadic.h"
#include <map>

using namespace pc;
using llvm::StringRef;
namespace json = llvm::json;

namespace {

/// The text that a viewer shows on a span.
std::string nameOf(const StageSpan &span) {
  if (span.isTask())
    return llvm::formatv("{0} {1}{2}", span.category(), span.microbatch,
                         span.chunk ? " of chunk " + std::to_string(span.chunk) : "");
  if (span.type == StageSpan::Message)
    return "message from stage " + std::to_string(span.from);
  return (span.what.empty() ? span.category() : span.what).str();
}

/// Writes keys in sorted order, as elsewhere.
void writeEvents(const StepTimeline &timeline, json::OStream &out) {
  for (size_t s = 0; s < timeline.size(); ++s)
    out.value(json::Object{{"ph", "M"},
                           {"name", "process_name"},
                           {"pid", static_cast<int64_t>(s)},
                           {"args", json::Object{{"name", "stage " + std::to_string(s)}}}});
  auto microseconds = [](double seconds) { return std::round(seconds * 1e9) / 1e3; };
  for (auto [number, stage] : llvm::enumerate(timeline))
    for (const StageSpan &span : stage.spans)
      out.object([&, number = number] {
        if (span.isTask())
          out.attributeObject("args", [&] {
            out.attribute("chunk", span.chunk);
            out.attribute("live_bytes", span.liveBytes);
            out.attribute("microbatch", span.microbatch);
            out.attribute("moves", microseconds(span.moves));
          });
        out.attribute("cat", span.category());
        out.attribute("dur", microseconds(span.end) - microseconds(span.start));
        out.attribute("name", nameOf(span));
        out.attribute("ph", "X");
        out.attribute("pid", static_cast<int64_t>(number));
        out.attribute("tid", 0);
        out.attribute("ts", microseconds(span.start));
      });
}

} // namespace

/// Copies the JSON value to `out` and writes the events in place of the member "traceEvents".
void pc::writeWithTimeline(const json::Value &value, const StepTimeline &timeline, json::OStream &out) {
  if (const json::Array *array = value.getAsArray())
    return out.array([&] {
      for (const json::Value &element : *array)
        writeWithTimeline(element, timeline, out);
    });
  const json::Object *object = value.getAsObject();
  if (!object)
    return out.value(value);
  std::map<StringRef, const json::Value *> sorted;
  for (const auto &[key, element] : *object)
    sorted[key] = &element;
  out.object([&] {
    for (auto [key, element] : sorted) {
      out.attributeBegin(key);
      if (key == "traceEvents")
        out.array([&] { writeEvents(timeline, out); });
      else
        writeWithTimeline(*element, timeline, out);
      out.attributeEnd();
    }
  });
}
