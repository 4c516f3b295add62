//===- Tile.cpp - a product of matrices of one size, for one thread -------===//
#include "cpu/Tile.h"
#include "cpu/PlainGemm.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

using namespace pcrt;

struct Tile::Library {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul product;
  dnnl::reorder pack; ///< b as the product wants it, where that is another form
  dnnl::memory a, b, packedB, c, scratch;
  std::vector<dnnl_exec_arg_t> args;

  /// Packed b lies behind the product's own memory.
  int64_t packedOffset() const { return (int64_t(scratch.get_desc().get_size()) + 63) / 64 * 64; }
};

static dnnl::memory::desc describe(int64_t rows, int64_t columns, int64_t rowStride, int64_t columnStride,
                                   int32_t dtype) {
  auto type = dtype == PCRT_BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  // The stride of an extent of 1 is of no consequence to us, but to oneDNN.
  if (columns == 1 && rowStride != 1)
    columnStride = 1;
  if (columnStride == 1)
    rowStride = std::max(rowStride, columns);
  else
    columnStride = std::max(columnStride, rows);
  return dnnl::memory::desc({rows, columns}, type, dnnl::memory::dims{rowStride, columnStride});
}

Tile::Tile(const pcrt_gemm_desc &of) : desc(of) {
  desc.batch = 1;
  const pcrt_gemm_desc &d = desc;
  auto made = std::make_unique<Library>();
  try {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (d.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    dnnl::memory::desc a = describe(d.m, d.k, d.a_m_stride, d.a_k_stride, d.a_dtype);
    dnnl::memory::desc b = describe(d.k, d.n, d.b_k_stride, d.b_n_stride, d.b_dtype);
    dnnl::memory::desc c = describe(d.m, d.n, d.c_m_stride, d.c_n_stride, d.c_dtype);
    dnnl::memory::desc anyB({d.k, d.n}, b.data_type(), dnnl::memory::format_tag::any);
    dnnl::matmul::primitive_desc primitive(dnnl::matmul::desc(a, anyB, c), attributes, made->engine);
    made->product = dnnl::matmul(primitive);
    made->a = dnnl::memory(a, made->engine, nullptr);
    made->b = made->packedB = dnnl::memory(b, made->engine, nullptr);
    if (primitive.weights_desc() != b) {
      made->packedB = dnnl::memory(primitive.weights_desc(), made->engine, nullptr);
      made->pack = dnnl::reorder(made->b, made->packedB);
    }
    made->c = dnnl::memory(c, made->engine, nullptr);
    made->scratch = dnnl::memory(primitive.scratchpad_desc(), made->engine, nullptr);
    made->args = {{DNNL_ARG_SRC, made->a.get()},
                  {DNNL_ARG_WEIGHTS, made->packedB.get()},
                  {DNNL_ARG_DST, made->c.get()},
                  {DNNL_ARG_SCRATCHPAD, made->scratch.get()}};
    library = std::move(made);
  } catch (const dnnl::error &) { // of a CPU that lacks what it needs
  }
}

Tile::~Tile() = default;

bool Tile::isPlain() const { return !library; }

int64_t Tile::scratchBytes() const {
  if (!library)
    return 0;
  return library->packedOffset() + (library->pack ? int64_t(library->packedB.get_desc().get_size()) : 0);
}

static dnnl_status_t set(dnnl::memory &memory, const void *at) {
  return dnnl_memory_set_data_handle(memory.get(), const_cast<void *>(at));
}

int Tile::setB(const void *b, void *scratch) {
  plainB = b;
  if (!library)
    return dnnl_success;
  dnnl_status_t status = set(library->b, b);
  if (!library->pack || status != dnnl_success)
    return status;
  status = set(library->packedB, static_cast<char *>(scratch) + library->packedOffset());
  dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, library->b.get()}, {DNNL_ARG_TO, library->packedB.get()}};
  return status != dnnl_success ? status : dnnl_primitive_execute(library->pack.get(), library->stream.get(), 2, args);
}

int Tile::run(const void *a, void *c, void *scratch) {
  if (!library) {
    plainGemm(desc, a, plainB, c, nullptr);
    return dnnl_success;
  }
  dnnl_status_t status = set(library->a, a);
  if (status == dnnl_success)
    status = set(library->c, c);
  if (status == dnnl_success)
    status = set(library->scratch, scratch);
  return status != dnnl_success ? status
                                : dnnl_primitive_execute(library->product.get(), library->stream.get(),
                                                         int(library->args.size()), library->args.data());
}
