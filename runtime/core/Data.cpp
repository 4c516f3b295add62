//===- Data.cpp - tokens to train on --------------------------------------===//
#include "core/Data.h"
#include "core/Failure.h"

#include <cstring>

using namespace pcrt;

TokenFile::TokenFile(const std::string &spec) {
  constexpr int32_t magic = 20240520;
  constexpr int64_t headerBytes = 256 * 4;
  bool text = spec.compare(0, 5, "text:") == 0;
  file = MappedFile(text ? spec.substr(5) : spec);
  data = file.data();
  int32_t header[3] = {};
  if (file.size() >= int64_t(sizeof header))
    memcpy(header, data, sizeof header);
  if (text) {
    bytesPerToken = 1;
    tokens = file.size();
  } else if (header[0] == magic) {
    if (header[1] != 1)
      fail(PCRT_BAD_DATA,
           path() + ": version " + std::to_string(header[1]) + " of the .bin format is not supported, only 1");
    int64_t expected = headerBytes + 2 * int64_t(header[2]);
    if (header[2] < 0 || file.size() < expected)
      fail(PCRT_BAD_DATA, path() + ": the header says " + std::to_string(header[2]) + " tokens, but the file has " +
                              std::to_string(file.size()) + " bytes");
    data += headerBytes;
    tokens = header[2];
  } else {
    if (file.size() % 2)
      fail(PCRT_BAD_DATA, path() + ": " + std::to_string(file.size()) +
                              " bytes are no whole number of 16-bit tokens; for text use text:" + path());
    tokens = file.size() / 2;
  }
  if (tokens < 2)
    fail(PCRT_BAD_DATA, path() + ": the data is empty or too small (" + std::to_string(tokens) +
                            " tokens; a token and its target are needed)");
}

BatchLoader::BatchLoader(const Program &program, const TokenFile &file, int rank) : program(program), file(file) {
  for (const Input &input : program.inputs)
    blocks.push_back(input.isOn(program.mesh, rank) ? blockOf(program.mesh, input.shape, input.layout, rank)
                                                    : Block{{0, 0, 0}, {0, 0, 0}});
}

void BatchLoader::fill(int64_t sample, char *const *inputs) const {
  int64_t rows = program.batch, length = program.sequence;
  // Modulo first: sample * T may be beyond int64 in an absurdly long run.
  int64_t start = int64_t(__int128(sample) * length % file.count());
  for (int64_t i = 0; i <= rows * length; ++i) {
    int32_t token = file.at(start + i);
    if (token >= program.vocabulary)
      fail(PCRT_BAD_DATA, file.path() + ": token " + std::to_string(token) + " at position " +
                              std::to_string((start + i) % file.count()) + " is not in the vocabulary of " +
                              std::to_string(program.vocabulary));
  }
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Input &input = program.inputs[i];
    if (input.kind != "tokens" && input.kind != "targets")
      continue;
    const Block &block = blocks[i];
    int64_t shift = input.kind == "targets";
    auto *out = reinterpret_cast<int32_t *>(inputs[i]);
    for (int64_t microbatch = 0; microbatch < block.size[0]; ++microbatch)
      for (int64_t row = 0; row < block.size[1]; ++row)
        for (int64_t column = 0; column < block.size[2]; ++column) {
          int64_t globalRow = (microbatch + block.start[0]) * input.shape[1] + row + block.start[1];
          *out++ = file.at(start + globalRow * length + program.position(column + block.start[2]) + shift);
        }
  }
}
