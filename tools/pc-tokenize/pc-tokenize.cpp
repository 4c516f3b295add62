//===- pc-tokenize.cpp - Files of text to files of tokens ------------------===//
// Parses the command line and calls tokenize or decode (Tokenize.h).
//===----------------------------------------------------------------------===//
#include "Tokenize.h"
#include "base/Failure.h"
#include "comm/Environment.h"
#include "pcrt/outputs.h"
#include "pcrt/version.h"

#include <csignal>
#include <cstdio>
#include <cstring>

using namespace pcrt;

static const char usage[] =
    R"(usage: pc-tokenize TOKENIZER INPUT... -o OUT.bin|OUT.npy [options]
       pc-tokenize TOKENIZER --decode TOKENS... [-o OUT.txt]

Turns text into a file of tokens for --data, or such files back into text. TOKENIZER is a directory with a Hugging Face
tokenizer.json, or that file. INPUT is text (one document), JSON lines (.jsonl, .ndjson), Parquet (.parquet), or - for
standard input.

Options
  -o FILE            output: NAME.bin (llm.c's format) or NAME.npy; with --decode, a text file (default: standard output)
  --format FORMAT    text, lines (each line is a document), jsonl or parquet (default: by the name of the file)
  --field NAME       field or column of the text (default text)
  --end TOKEN        token after each document, by its text or id; 'none' for none (default: eos_token of
                     tokenizer_config.json, or eos_token_id of config.json)
  --template         add the tokens of the tokenizer's template to each document
  --threads N        number of threads (default: one per core)
  --decode           turn files of tokens into text

Information
  --version          print the version
  --help             show this text

exit codes: 2 usage, 3 a tokenizer that is not supported, 6 a full disk or no memory, 9 bad data or a malformed tokenizer;
128 + n after signal n. On failure, no output is written.

example:
  pc-tokenize gpt2 part-*.jsonl --field text -o tokens.bin
)";

static void parse(int argc, char **argv, TokenizeOptions &options, bool &decodes) {
  std::vector<std::string> names;
  for (int at = 1; at < argc; ++at) {
    std::string flag = argv[at], value;
    if (flag[0] != '-' || flag == "-") {
      names.push_back(flag);
      continue;
    }
    if (flag == "--decode" || flag == "--template") {
      (flag == "--decode" ? decodes : options.usesTemplate) = true;
      continue;
    }
    if (size_t equal = flag.find('='); equal != std::string::npos) {
      value = flag.substr(equal + 1);
      flag.resize(equal);
    } else if (at + 1 < argc) {
      value = argv[++at];
    }
    if (value.empty())
      fail(PCRT_USAGE, "a value is missing after '" + printable(flag) + "'; try 'pc-tokenize --help'");
    static constexpr const char *formats[] = {"text", "lines", "jsonl", "parquet"};
    if (flag == "-o") {
      options.output = value;
    } else if (flag == "--field") {
      options.field = value;
    } else if (flag == "--end") {
      options.end = value;
    } else if (flag == "--threads") {
      char *end;
      options.threads = int(strtol(value.c_str(), &end, 10));
      if (*end || options.threads < 1 || options.threads > 1024)
        fail(PCRT_USAGE, "--threads takes a number from 1 to 1024, not '" + printable(value) + "'");
    } else if (flag == "--format") {
      for (int i = 0; i < 4; ++i)
        if (value == formats[i])
          options.format = Format(i);
      if (!options.format)
        fail(PCRT_USAGE, "--format takes text, lines, jsonl or parquet, not '" + printable(value) + "'");
    } else {
      fail(PCRT_USAGE, "unknown option '" + printable(flag) + "'; try 'pc-tokenize --help'");
    }
  }
  if (names.size() < 2)
    fail(PCRT_USAGE, "a tokenizer and at least one input are needed; try 'pc-tokenize --help'");
  if (!decodes && options.output.empty())
    fail(PCRT_USAGE, "the output is missing: -o NAME.bin or -o NAME.npy");
  options.tokenizer = names[0];
  options.inputs.assign(names.begin() + 1, names.end());
  std::vector<NamedPath> inputs = filesOfModel("tokenizer", options.tokenizer);
  for (const std::string &input : options.inputs)
    inputs.push_back({"input", input});
  if (std::string why = clashOfOutputs(inputs, {{"-o", options.output}}); !why.empty())
    fail(PCRT_USAGE, why);
}

int main(int argc, char **argv) {
  holdStandardFiles();
  signal(SIGXFSZ, SIG_IGN); // a file beyond `ulimit -f` is an error
  for (int one : {SIGINT, SIGTERM, SIGHUP})
    if (signal(one, stopTokenizing) == SIG_IGN)
      signal(one, SIG_IGN);
  bool isHelp = argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
  if (isHelp || (argc == 2 && !strcmp(argv[1], "--version"))) {
    isHelp ? (void)fputs(usage, stdout) : (void)printf("pc-tokenize %s\n", pcrt_version);
  } else {
    try {
      TokenizeOptions options;
      bool decodes = false;
      parse(argc, argv, options, decodes);
      decodes ? decode(options) : tokenize(options);
    } catch (const Failure &failure) {
      fprintf(stderr, "pc-tokenize: error: %s\n", failure.message.c_str());
      return stopSignal() ? 128 + stopSignal() : failure.status;
    } catch (const std::bad_alloc &) {
      fprintf(stderr, "pc-tokenize: error: there is not enough memory\n");
      return PCRT_RESOURCE;
    }
  }
  if (standardOutputWritten())
    return PCRT_OK;
  perror("pc-tokenize: error: cannot write to standard output");
  return PCRT_RESOURCE;
}
