//===- Tile.cpp - A product of matrices of one size, for one thread -------===//
// A tile is a Matmul with packed b if oneDNN supports the product, and otherwise plainGemm.
//===----------------------------------------------------------------------===//
#include "cpu/Tile.h"
#include "cpu/Matmul.h"
#include "cpu/PlainGemm.h"

using namespace pcrt;

/// Computes the product by oneDNN, with a separate engine.
struct Tile::Library {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  Matmul product;

  Library(const pcrt_gemm_desc &desc, const Operands &operands, bool nativeBf16)
      : product(desc, operands, /*packB=*/true, nativeBf16, engine) {}
};

Tile::Tile(const pcrt_gemm_desc &of, bool nativeBf16) : desc(of) {
  desc.batch = 1;
  std::optional<Operands> operands = operandsOf(desc);
  if (!operands)
    return;
  try {
    library = std::make_unique<Library>(desc, *operands, nativeBf16);
  } catch (const dnnl::error &) { // the CPU lacks the instructions
  }
}

Tile::~Tile() = default;

bool Tile::isPlain() const { return !library; }

int64_t Tile::scratchBytes() const { return library ? library->product.scratchBytes() : 0; }

int Tile::setB(const void *b, void *scratch) {
  plainB = b;
  return library ? library->product.setB(b, scratch, library->stream) : dnnl_success;
}

int Tile::run(const void *a, void *c, void *scratch) {
  if (library)
    return library->product.run(a, c, nullptr, scratch, library->stream);
  plainGemm(desc, a, plainB, c, nullptr);
  return dnnl_success;
}
