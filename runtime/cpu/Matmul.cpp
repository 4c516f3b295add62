//===- Matmul.cpp - A product of two matrices by oneDNN -------------------===//
// Wraps dnnl::matmul with plain strides for a, b and c, a user-managed scratchpad and its arguments prepared, so that a
// call only sets addresses.
//===----------------------------------------------------------------------===//
#include "cpu/Matmul.h"

#include <dlfcn.h>

using namespace pcrt;

void pcrt::workAlone() {
  static auto *setNumThreads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (setNumThreads)
    setNumThreads(1);
}

static dnnl::memory::desc descOf(const Matrix &matrix) {
  auto type = matrix.dtype == PCRT_BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  return dnnl::memory::desc({matrix.rows, matrix.columns}, type,
                            dnnl::memory::dims{matrix.rowStride, matrix.columnStride});
}

Matmul::Matmul(const pcrt_gemm_desc &d, const Operands &of, bool packB, bool nativeBf16, const dnnl::engine &engine) {
  if (!nativeBf16 && WidenedMatmul::takes(of)) {
    widened.emplace(d, of, packB);
    return;
  }
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (d.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  bool hasBias = d.epilogue == PCRT_EPILOGUE_BIAS;
  dnnl::memory::desc aDesc = descOf(of.a), bDesc = descOf(of.b), cDesc = descOf(of.c), wanted = bDesc;
  dnnl::memory::desc biasDesc({1, d.n}, dnnl::memory::data_type::f32, dnnl::memory::dims{d.n, 1});
  if (packB)
    wanted = dnnl::memory::desc({d.k, d.n}, bDesc.data_type(), dnnl::memory::format_tag::any);
  dnnl::matmul::primitive_desc primitive(hasBias ? dnnl::matmul::desc(aDesc, wanted, biasDesc, cDesc)
                                                 : dnnl::matmul::desc(aDesc, wanted, cDesc),
                                         attributes, engine);
  product = dnnl::matmul(primitive);
  a = dnnl::memory(aDesc, engine, nullptr);
  b = packedB = dnnl::memory(bDesc, engine, nullptr);
  if (primitive.weights_desc() != bDesc) {
    packedB = dnnl::memory(primitive.weights_desc(), engine, nullptr);
    pack = dnnl::reorder(b, packedB);
  }
  c = dnnl::memory(cDesc, engine, nullptr);
  scratch = dnnl::memory(primitive.scratchpad_desc(), engine, nullptr);
  args = {{DNNL_ARG_SRC, a.get()},
          {DNNL_ARG_WEIGHTS, packedB.get()},
          {DNNL_ARG_DST, c.get()},
          {DNNL_ARG_SCRATCHPAD, scratch.get()}};
  if (hasBias) {
    bias = dnnl::memory(biasDesc, engine, nullptr);
    args.push_back({DNNL_ARG_BIAS, bias.get()});
  }
}

int64_t Matmul::scratchBytes() const {
  return widened ? widened->scratchBytes() : packedOffset() + (pack ? int64_t(packedB.get_desc().get_size()) : 0);
}

static dnnl_status_t set(dnnl::memory &memory, const void *at) {
  return dnnl_memory_set_data_handle(memory.get(), const_cast<void *>(at));
}

dnnl_status_t Matmul::setB(const void *from, void *scratchMemory, const dnnl::stream &stream) {
  if (widened) {
    widened->setB(from, scratchMemory);
    return dnnl_success;
  }
  dnnl_status_t status = set(b, from);
  if (!pack || status != dnnl_success)
    return status;
  status = set(packedB, static_cast<char *>(scratchMemory) + packedOffset());
  dnnl_exec_arg_t packArgs[] = {{DNNL_ARG_FROM, b.get()}, {DNNL_ARG_TO, packedB.get()}};
  return status != dnnl_success ? status : dnnl_primitive_execute(pack.get(), stream.get(), 2, packArgs);
}

dnnl_status_t Matmul::run(const void *aAt, void *cAt, const void *biasAt, void *scratchMemory,
                          const dnnl::stream &stream) {
  if (widened)
    return widened->run(aAt, cAt, biasAt, scratchMemory);
  dnnl_status_t status = set(a, aAt);
  if (status == dnnl_success)
    status = set(c, cAt);
  if (status == dnnl_success && bias)
    status = set(bias, biasAt);
  if (status == dnnl_success)
    status = set(scratch, scratchMemory);
  return status != dnnl_success ? status
                                : dnnl_primitive_execute(product.get(), stream.get(), int(args.size()), args.data());
}
