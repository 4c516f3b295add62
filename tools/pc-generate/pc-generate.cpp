//===- pc-generate.cpp - Answers prompts with a model in one command ------===//
// Imports, compiles and runs a model, encodes prompts, and writes the answers.
//===----------------------------------------------------------------------===//
#include "Answering.h"
#include "base/Failure.h"
#include "commands/GeneratingProgram.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <unistd.h>

using namespace pcrt;

static const char usage[] =
    R"(usage: pc-generate MODEL [-n N] --prompt TEXT [flags]
       pc-generate MODEL [-n N] --ids LIST [flags]
       pc-generate MODEL [-n N] --prompts FILE.jsonl [flags]

Imports MODEL, compiles it and lets it continue prompts on N ranks of this machine. MODEL is a Hugging Face directory, or a
model program (.mlir). pc-generate also takes the flags of pc-compile and pc-run, such as --mesh, --precision and --target.
If no flag names a plan, the ranks share the attention heads as far as these can be divided (tensor parallelism), and
beyond that the requests (data parallelism). The commands are printed before they run.

Prompts
  --prompt TEXT     print the text that continues TEXT, while it is generated; MODEL needs a tokenizer.json
  --ids LIST        the same with token ids, separated by commas or spaces; needs no tokenizer.json
  --prompts FILE    answer lines of JSON with the field names of OpenAI's completions: prompt, max_tokens, temperature, top_p,
                    top_k, min_p, seed, stop, logprobs and id; "-" reads standard input. Answers are lines of JSON in the order of
                    the requests. A wrong request gets a line with an error, and the others are answered
  --out FILE        write answers to FILE instead of standard output

Tokens; with --prompts, the values of fields that a request leaves out
  --max-tokens N    maximum number of new tokens (default 128, or fewer if the context ends)
  --temperature T   0 takes the most probable token (default), larger values choose more randomly
  --top-k K         choose among the K most probable tokens (default 0: all)
  --top-p P         choose among the most probable tokens whose probabilities add up to P (default 1: all)
  --min-p P         choose among tokens at least P times as probable as the most probable one (default 0: all)
  --seed N          choose the same tokens on every plan and with any other requests (default 0)
  --stop TEXT       end the answer before TEXT; may be repeated

Program
  --slots N         sequences that each data rank works on at a time (default 8)
  --context N       maximum number of tokens of a prompt with its answer (default: as many as the model can read, at most 1024)
  --chunk N         tokens of prompts that each data rank reads in a step, besides its --size other tokens (default 64)
  --init DIR|FILE   take the weights from here instead of MODEL

Instead of a run
  --chat            not supported: prints what to do instead
  --version         print the version
  --help            show this text

Executables are kept in PCRT_CACHE_DIR, by default $XDG_CACHE_HOME/pc or ~/.cache/pc, and used again.

exit codes: 2 usage, 9 if a request of --prompts was wrong, 141 if the reader of the answers has gone; otherwise the one of
the command that fails.

example:
  pc-generate gpt2 -n 2 --prompt "The capital of France is"
)";

/// Throws Failure if the flags do not name one kind of prompts.
static void checkPrompts(const Request &request) {
  if (request.has("--chat"))
    fail(PCRT_USAGE, "--chat is not supported: chat templates are Jinja programs, which pc-generate cannot run. Render "
                     "the messages with transformers, apply_chat_template(messages, tokenize=False, "
                     "add_generation_prompt=True), and pass the text with --prompt, or token ids with --ids");
  if (request.has("--prompt") + request.has("--ids") + request.has("--prompts") != 1)
    fail(PCRT_USAGE, "give one of --prompt, --ids and --prompts");
}

static std::vector<int32_t> readIds(const std::string &list) {
  std::vector<int32_t> ids;
  const char *at = list.c_str();
  while (*at) {
    char *end;
    errno = 0;
    long id = strtol(at, &end, 10);
    bool isEnd = !*end || strchr(", \t\n", *end);
    if (end == at || !isEnd || errno || id < 0 || id > INT32_MAX)
      fail(PCRT_USAGE, "--ids takes token ids, separated by commas or spaces, not '" + list + "'");
    ids.push_back(int32_t(id));
    at = end + strspn(end, ", \t\n");
  }
  return ids;
}

/// The files that are read and written. They are opened before anything is compiled.
struct Files {
  explicit Files(const Request &request) {
    if (const std::string *path = request.valueOf("--prompts"); path && *path != "-") {
      requests = open(path->c_str(), O_RDONLY | O_CLOEXEC);
      if (requests < 0)
        fail(PCRT_BAD_DATA, withErrno("cannot read " + *path));
    }
    if (const std::string *path = request.valueOf("--out")) {
      answers = fopen(path->c_str(), "we");
      if (!answers)
        fail(PCRT_RESOURCE, withErrno("cannot write " + *path));
    }
  }

  int requests = STDIN_FILENO;
  FILE *answers = stdout;
};

static int generate(int argc, char **argv) {
  Commands commands("pc-generate");
  FlagKinds kinds = generationFlags(commands, usage);
  Request request = readGenerationFlags(kinds, argc, argv);
  checkPrompts(request);
  TextRequest defaults = requestOf(request);
  Form form = request.has("--prompts") ? Form::Lines : request.has("--ids") ? Form::Ids : Form::Text;
  std::unique_ptr<Tokenizer> tokenizer;
  if (form != Form::Ids || !defaults.stops.empty())
    tokenizer = tokenizerOf(request.model);
  if (!tokenizer && (form == Form::Text || !defaults.stops.empty()))
    fail(PCRT_USAGE, "'" + request.model + "' has no tokenizer.json, which " +
                         (form == Form::Text ? "--prompt" : "--stop") + " needs; give token ids with --ids");
  TextRequest one = defaults;
  if (const std::string *text = request.valueOf("--prompt"))
    one.text = *text;
  if (const std::string *list = request.valueOf("--ids"))
    one.generation.prompt = readIds(*list);
  Files files(request);

  GeneratingProgram program(commands, request, kinds);
  int failures = 0;
  bool isComplete = false;
  {
    Answering answering(program.engine(), tokenizer.get(), defaults, form, files.answers);
    try {
      if (form == Form::Lines)
        answering.answerLines(files.requests);
      else
        answering.answer(one);
    } catch (const RequestError &error) {
      fail(PCRT_USAGE, error.field + ": " + error.message);
    }
    if (answering.isReaderGone())
      return 128 + SIGPIPE; // which is ignored
    failures = answering.failures();
    isComplete = answering.isComplete();
  }
  if (int code = program.end())
    return code;
  if (!isComplete)
    fail(PCRT_INTERNAL, "the program ended before it had answered everything");
  if (failures == 0)
    return PCRT_OK;
  if (form == Form::Lines)
    fprintf(stderr, "pc-generate: %d requests got an error\n", failures);
  return PCRT_BAD_DATA;
}

int main(int argc, char **argv) { return runTool("pc-generate", usage, argc, argv, generate); }
