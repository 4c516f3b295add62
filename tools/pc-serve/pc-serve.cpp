//===- pc-serve.cpp - An HTTP server for a model in one command -----------===//
// Imports, compiles and runs a model, and answers requests over OpenAI's HTTP interface (runtime/serve).
//===----------------------------------------------------------------------===//
#include "base/Failure.h"
#include "base/InputFile.h"
#include "commands/GeneratingProgram.h"
#include "serve/HttpServer.h"

#include <charconv>
#include <chrono>
#include <filesystem>
#include <thread>

using namespace pcrt;

static const char usage[] =
    R"(usage: pc-serve MODEL [-n N] [--port N] [flags]

Imports MODEL, compiles it, runs it on N ranks of this machine, and answers requests over HTTP as OpenAI's API does:
/v1/completions, /v1/models, /health, and /metrics for Prometheus. MODEL is a Hugging Face directory, or a model program
(.mlir). pc-serve also takes the flags of pc-compile and pc-run, and chooses a plan as pc-generate does.

Server
  --host ADDRESS    the address to listen on (default 127.0.0.1: only programs of this machine can connect)
  --port N          the port (default 8000; 0: a free one, which is printed)
  --name NAME       the name of the model (default: its directory's name)
  --api-key-file FILE
                    every request except /health needs the key in this file, as "Authorization: Bearer KEY"
  --queue N         maximum number of requests at a time, beyond which clients get status 429 (default 128)
  --seconds S       maximum time for an answer, after which the request ends with status 504 (default 600)

Values of fields that a request leaves out
  --max-tokens N    maximum number of new tokens (default 16)
  --temperature T   0 takes the most probable token, larger values choose more randomly (default 1)
  --top-k K         choose among the K most probable tokens (default 0: all)
  --top-p P         choose among the most probable tokens whose probabilities add up to P (default 1: all)
  --min-p P         choose among tokens at least P times as probable as the most probable one (default 0: all)
  --stop TEXT       end the answer before TEXT; may be repeated

Program
  --slots N         sequences that each data rank works on at a time (default 8)
  --context N       maximum number of tokens of a prompt with its answer (default: as many as the model can read, at most 1024)
  --chunk N         tokens of prompts that each data rank reads in a step, besides its --size other tokens (default 64)
  --init DIR|FILE   take the weights from here instead of MODEL

Instead of a run
  --version         print the version
  --help            show this text

SIGINT and SIGTERM end the server; requests that are not complete get status 503.

exit codes: 2 usage; otherwise the code of the command that fails, also if the program ends while the server runs; 128 + n
after signal n.

example:
  pc-serve gpt2 -n 2 --port 8000
)";

static int64_t numberOf(const Request &request, const char *flag, int64_t otherwise, int64_t least, int64_t most) {
  const std::string *text = request.valueOf(flag);
  if (!text)
    return otherwise;
  int64_t value = 0;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < least || value > most)
    fail(PCRT_USAGE, std::string(flag) + " takes a number from " + std::to_string(least) + " to " +
                         std::to_string(most) + ", not '" + *text + "'");
  return value;
}

static ServerOptions optionsOf(const Request &request) {
  ServerOptions options;
  options.port = int(numberOf(request, "--port", options.port, 0, 65535));
  options.requests = int(numberOf(request, "--queue", options.requests, 1, 100000));
  options.seconds = double(numberOf(request, "--seconds", int64_t(options.seconds), 1, 1000000));
  if (const std::string *host = request.valueOf("--host"))
    options.host = *host;
  options.model = std::filesystem::weakly_canonical(request.model).stem();
  if (const std::string *name = request.valueOf("--name"))
    options.model = *name;
  if (const std::string *path = request.valueOf("--api-key-file")) {
    options.apiKey = InputFile(*path).text();
    options.apiKey.erase(options.apiKey.find_last_not_of(" \t\r\n") + 1);
    if (options.apiKey.empty())
      fail(PCRT_USAGE, "--api-key-file: " + *path + " is empty");
  }
  options.defaults = requestOf(request);
  if (options.defaults.generation.maxTokens == 0)
    options.defaults.generation.maxTokens = GenerationRequest().maxTokens;
  if (!request.has("--temperature"))
    options.defaults.generation.sampling.temperature = 1;
  return options;
}

static int serve(int argc, char **argv) {
  Commands commands("pc-serve");
  FlagKinds kinds = generationFlags(commands, usage);
  Request request = readGenerationFlags(kinds, argc, argv);
  ServerOptions options = optionsOf(request);
  std::unique_ptr<Tokenizer> tokenizer = tokenizerOf(request.model);

  GeneratingProgram program(commands, request, kinds);
  {
    HttpServer server(program.engine(), tokenizer.get(), options);
    int port = server.bind();
    bool isIpv6 = options.host.find(':') != std::string::npos;
    fprintf(stderr, "pc-serve: listening on http://%s:%d\n", (isIpv6 ? "[" + options.host + "]" : options.host).c_str(),
            port);
    // Signals are passed on to the program. When a signal has ended it, the server also ends.
    std::thread watcher([&] {
      while (program.engine().isUp())
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      server.stop();
    });
    server.run();
    watcher.join();
  }
  return program.end();
}

int main(int argc, char **argv) { return runTool("pc-serve", usage, argc, argv, serve); }
