// The matrix products of the kernels, as register tiles; compiled once for each type of numbers.
#include "runtime.hpp"

// out[o] = bias[o] * beta + alpha * sum over c of W[o * rs + c * cs] * in[c], for M rows o and N vectors
template <int M, int N>
INLINE void tile(const R* W, long rs, long cs, long C, const vec* in, vec* out, long ld, R alpha, const R* bias, R beta) {
  vec sum[M][N];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sum[m][n] = vec{};
  for (long c = 0; c < C; ++c) {
    vec b[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) b[n] = in[c * ld + n];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const vec a = all(W[m * rs + c * cs]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sum[m][n] += a * b[n];
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    const R start = bias ? bias[m] * beta : R(0);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) out[m * ld + n] = sum[m][n] * alpha + start;
  }
}

template <int N>
INLINE void columns(const R* W, long rs, long cs, long O, long C, const vec* in, vec* out, long ld, R alpha,
                    const R* bias, R beta) {
  long o = 0;
  for (; o + ROWS <= O; o += ROWS)
    tile<ROWS, N>(W + o * rs, rs, cs, C, in, out + o * ld, ld, alpha, bias ? bias + o : nullptr, beta);
#define LAST(M)                                                                                             \
  case M:                                                                                                   \
    tile<M, N>(W + o * rs, rs, cs, C, in, out + o * ld, ld, alpha, bias ? bias + o : nullptr, beta);        \
    break;
  switch (O - o) { LAST(1) LAST(2) LAST(3) LAST(4) LAST(5) }
#undef LAST
}

// a shared matrix times a lane of the tokens
void times(const R* W, long rs, long cs, long O, long C, const vec* in, vec* out,
                                            long nv, long ld, R alpha, const R* bias, R beta) {
  long v = 0;
  for (; v + COLUMNS <= nv; v += COLUMNS) columns<COLUMNS>(W, rs, cs, O, C, in + v, out + v, ld, alpha, bias, beta);
  switch (nv - v) {
    case 1: columns<1>(W, rs, cs, O, C, in + v, out + v, ld, alpha, bias, beta); break;
    case 2: columns<2>(W, rs, cs, O, C, in + v, out + v, ld, alpha, bias, beta); break;
    case 3: columns<3>(W, rs, cs, O, C, in + v, out + v, ld, alpha, bias, beta); break;
  }
}

// sums over the lanes of four vectors at once
INLINE void four_sums(vec a, vec b, vec c, vec d, R* out) {
#if VECTOR_BYTES == 64
  if constexpr (sizeof(R) == 4) {
    __m512 x = (__m512)a, y = (__m512)b, z = (__m512)c, w = (__m512)d;
    __m512 p = _mm512_add_ps(_mm512_unpacklo_ps(x, y), _mm512_unpackhi_ps(x, y));
    __m512 q = _mm512_add_ps(_mm512_unpacklo_ps(z, w), _mm512_unpackhi_ps(z, w));
    __m512d e = (__m512d)p, f = (__m512d)q;
    __m512 s = _mm512_add_ps((__m512)_mm512_unpacklo_pd(e, f), (__m512)_mm512_unpackhi_pd(e, f));
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
    _mm_storeu_ps((float*)out, _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)));
  } else {
    __m512d x = (__m512d)a, y = (__m512d)b, z = (__m512d)c, w = (__m512d)d;
    __m512d p = _mm512_add_pd(_mm512_unpacklo_pd(x, y), _mm512_unpackhi_pd(x, y));
    __m512d q = _mm512_add_pd(_mm512_unpacklo_pd(z, w), _mm512_unpackhi_pd(z, w));
    __m256d g = _mm256_add_pd(_mm512_castpd512_pd256(p), _mm512_extractf64x4_pd(p, 1));
    __m256d h = _mm256_add_pd(_mm512_castpd512_pd256(q), _mm512_extractf64x4_pd(q, 1));
    _mm_storeu_pd((double*)out, _mm_add_pd(_mm256_castpd256_pd128(g), _mm256_extractf128_pd(g, 1)));
    _mm_storeu_pd((double*)out + 2, _mm_add_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd(h, 1)));
  }
#else
  out[0] = lanes_sum(a), out[1] = lanes_sum(b), out[2] = lanes_sum(c), out[3] = lanes_sum(d);
#endif
}

template <int M, int N>
INLINE void outer_tile(const vec* a, const vec* b, long nv, long ld, R* out, long rs, long cs) {
  vec sum[M][N];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sum[m][n] = vec{};
  for (long v = 0; v < nv; ++v) {
    vec y[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) y[n] = b[n * ld + v];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const vec x = a[m * ld + v];
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sum[m][n] += x * y[n];
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    R sums[4];
    four_sums(sum[m][0], N > 1 ? sum[m][N > 1 ? 1 : 0] : vec{}, N > 2 ? sum[m][N > 2 ? 2 : 0] : vec{},
              N > 3 ? sum[m][N > 3 ? 3 : 0] : vec{}, sums);
    for (int n = 0; n < N; ++n) out[m * rs + n * cs] += sums[n];
  }
}

// out[k, c] += sum over tokens of a[k] b[c]
void outer(const vec* a, long K, const vec* b, long C, long nv, long ld, R* out, long rs,
                                            long cs) {
  for (long k = 0; k < K; k += SIDE) {
    const long rows = K - k < SIDE ? K - k : SIDE;
    for (long c = 0; c < C; c += SIDE) {
      const long cols = C - c < SIDE ? C - c : SIDE;
      const vec *x = a + k * ld, *y = b + c * ld;
      R* to = out + k * rs + c * cs;
      if (rows == SIDE && cols == SIDE) {
        outer_tile<SIDE, SIDE>(x, y, nv, ld, to, rs, cs);
      } else {
        for (long r = 0; r < rows; ++r) {
          switch (cols) {
            case 1: outer_tile<1, 1>(x + r * ld, y, nv, ld, to + r * rs, rs, cs); break;
            case 2: outer_tile<1, 2>(x + r * ld, y, nv, ld, to + r * rs, rs, cs); break;
            case 3: outer_tile<1, 3>(x + r * ld, y, nv, ld, to + r * rs, rs, cs); break;
            case 4: outer_tile<1, SIDE>(x + r * ld, y, nv, ld, to + r * rs, rs, cs); break;
          }
        }
      }
    }
  }
}
