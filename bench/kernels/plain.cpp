//===- plain.cpp - The special kernels as plain C++ loops -----------------===//
// Each function is the direct translation of its formula, with restrict pointers and no manual vectorization.
//===----------------------------------------------------------------------===//
#include "plain.h"
#include <cmath>
#include <cstring>

#define RESTRICT __restrict

namespace plain {
static float *real(Args args, int i) { return static_cast<float *>(args[i]); }

int64_t attention(Args args, int64_t lo, int64_t hi, void *scratch) {
  float *RESTRICT score = static_cast<float *>(scratch);
  for (int64_t item = lo; item < hi; ++item) {
    int64_t at = item / heads * tokens * width + item % heads * headDim;
    const float *RESTRICT q = real(args, 0) + at, *RESTRICT k = real(args, 1) + at, *RESTRICT v = real(args, 2) + at;
    float *RESTRICT o = real(args, 3) + at, *RESTRICT lse = real(args, 4) + item * tokens;
    for (int64_t i = 0; i < tokens; ++i) {
      float maximum = -1e30f, sum = 0, out[headDim] = {};
      for (int64_t j = 0; j <= i; ++j) {
        float dot = 0;
        for (int64_t c = 0; c < headDim; ++c)
          dot += q[i * width + c] * k[j * width + c];
        score[j] = dot * scale;
        maximum = std::fmax(maximum, score[j]);
      }
      for (int64_t j = 0; j <= i; ++j) {
        float p = std::exp(score[j] - maximum);
        sum += p;
        for (int64_t c = 0; c < headDim; ++c)
          out[c] += p * v[j * width + c];
      }
      for (int64_t c = 0; c < headDim; ++c)
        o[i * width + c] = out[c] / sum;
      lse[i] = maximum + std::log(sum);
    }
  }
  return 0;
}

int64_t attentionGrad(Args args, int64_t lo, int64_t hi, void *) {
  for (int64_t item = lo; item < hi; ++item) {
    int64_t at = item / heads * tokens * width + item % heads * headDim;
    const float *RESTRICT q = real(args, 0) + at, *RESTRICT k = real(args, 1) + at, *RESTRICT v = real(args, 2) + at;
    const float *RESTRICT o = real(args, 3) + at, *RESTRICT lse = real(args, 4) + item * tokens;
    const float *RESTRICT dout = real(args, 5) + at;
    float *RESTRICT dq = real(args, 6) + at, *RESTRICT dk = real(args, 7) + at, *RESTRICT dv = real(args, 8) + at;
    for (int64_t j = 0; j < tokens; ++j)
      for (int64_t c = 0; c < headDim; ++c)
        dk[j * width + c] = dv[j * width + c] = 0;
    for (int64_t i = 0; i < tokens; ++i) {
      float correction = 0, row[headDim] = {};
      for (int64_t c = 0; c < headDim; ++c)
        correction += o[i * width + c] * dout[i * width + c];
      for (int64_t j = 0; j <= i; ++j) {
        float dot = 0, dp = 0;
        for (int64_t c = 0; c < headDim; ++c) {
          dot += q[i * width + c] * k[j * width + c];
          dp += dout[i * width + c] * v[j * width + c];
        }
        float p = std::exp(dot * scale - lse[i]), ds = p * (dp - correction) * scale;
        for (int64_t c = 0; c < headDim; ++c) {
          row[c] += ds * k[j * width + c];
          dk[j * width + c] += ds * q[i * width + c];
          dv[j * width + c] += p * dout[i * width + c];
        }
      }
      for (int64_t c = 0; c < headDim; ++c)
        dq[i * width + c] = row[c];
    }
  }
  return 0;
}

int64_t layerNormGrad(Args args, int64_t lo, int64_t hi, void *scratch) {
  const float *RESTRICT dy = real(args, 0), *RESTRICT x = real(args, 1), *RESTRICT mean = real(args, 2);
  const float *RESTRICT rstd = real(args, 3), *RESTRICT gamma = real(args, 4);
  float *RESTRICT dx = real(args, 5), *RESTRICT dgamma = static_cast<float *>(scratch),
                  *RESTRICT dbeta = dgamma + width;
  std::memset(dgamma, 0, 2 * width * sizeof(float));
  for (int64_t r = lo; r < hi; ++r) {
    float along = 0, offset = 0;
    for (int64_t c = 0; c < width; ++c) {
      float g = dy[r * width + c], h = (x[r * width + c] - mean[r]) * rstd[r];
      along += g * gamma[c] * h;
      offset += g * gamma[c];
      dgamma[c] += g * h;
      dbeta[c] += g;
    }
    along /= width, offset /= width;
    for (int64_t c = 0; c < width; ++c)
      dx[r * width + c] =
          rstd[r] * (dy[r * width + c] * gamma[c] - offset - (x[r * width + c] - mean[r]) * rstd[r] * along);
  }
  return 0;
}

int64_t embedding(Args args, int64_t lo, int64_t hi, void *) {
  const int32_t *ids = static_cast<int32_t *>(args[1]);
  for (int64_t i = lo; i < hi; ++i)
    std::memcpy(real(args, 2) + i * width, real(args, 0) + ids[i] * width, width * sizeof(float));
  return 0;
}

int64_t embeddingGrad(Args args, int64_t lo, int64_t hi, void *) {
  const float *RESTRICT dy = real(args, 0);
  const int32_t *ids = static_cast<int32_t *>(args[1]);
  float *RESTRICT table = real(args, 2);
  for (int64_t v = 0; v < vocabulary; ++v)
    std::memset(table + v * width + lo, 0, (hi - lo) * sizeof(float));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = lo; c < hi; ++c)
      table[ids[i] * width + c] += dy[i * width + c];
  return 0;
}

int64_t adamw(Args args, int64_t lo, int64_t hi, void *) {
  float *RESTRICT p = real(args, 0), *RESTRICT m = real(args, 2), *RESTRICT v = real(args, 3);
  const float *RESTRICT g = real(args, 1), *RESTRICT hyper = real(args, 5);
  const float coefficient = *real(args, 4), lr = hyper[0], beta1 = hyper[1], beta2 = hyper[2], eps = hyper[3];
  const float keep = 1 - lr * hyper[4], step = lr / hyper[5], root = std::sqrt(hyper[6]);
  for (int64_t i = lo; i < hi; ++i) {
    float gradient = g[i] * coefficient;
    m[i] = beta1 * m[i] + (1 - beta1) * gradient;
    v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
    p[i] = p[i] * keep - step * m[i] / (std::sqrt(v[i]) / root + eps);
  }
  return 0;
}

int64_t rope(Args args, int64_t lo, int64_t hi, void *) {
  constexpr int64_t half = headDim / 2;
  for (int64_t token = lo; token < hi; ++token) {
    const float *RESTRICT cosine = real(args, 1) + token % tokens * half,
                          *RESTRICT sine = real(args, 2) + token % tokens * half;
    for (int64_t head = 0; head < heads; ++head) {
      const float *RESTRICT x = real(args, 0) + token * width + head * headDim;
      float *RESTRICT y = real(args, 3) + token * width + head * headDim;
      for (int64_t c = 0; c < half; ++c) {
        y[c] = x[c] * cosine[c] - x[c + half] * sine[c];
        y[c + half] = x[c + half] * cosine[c] + x[c] * sine[c];
      }
    }
  }
  return 0;
}

int64_t recurrence(Args args, int64_t lo, int64_t hi, void *) {
  for (int64_t token = lo * tokens; token < hi * tokens; ++token) {
    const float *RESTRICT a = real(args, 0) + token * width, *RESTRICT b = real(args, 1) + token * width;
    float *RESTRICT h = real(args, 2) + token * width;
    for (int64_t c = 0; c < width; ++c)
      h[c] = (token % tokens ? a[c] * h[c - width] : 0) + b[c];
  }
  return 0;
}
} // namespace plain
