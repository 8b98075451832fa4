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
#pragma GCC unroll 4
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

// rows[i][j] <-> rows[j][i] of VL rows of VL lanes, by exchanging halves, quarters, ...
template <int W>
INLINE void exchange(vec* rows) {
  typedef decltype(vec{} < vec{}) mask;
  mask low{}, high{};
#pragma GCC unroll 16
  for (long l = 0; l < VL; ++l) {
    low[l] = l & W ? VL + l - W : l;
    high[l] = l & W ? VL + l : l + W;
  }
#pragma GCC unroll 16
  for (long i = 0; i < VL; ++i)
    if (!(i & W)) {
      const vec a = rows[i], b = rows[i + W];
      rows[i] = __builtin_shuffle(a, b, low);
      rows[i + W] = __builtin_shuffle(a, b, high);
    }
}

INLINE void transpose(vec* rows) {
  if constexpr (VL >= 16) exchange<8>(rows);
  if constexpr (VL >= 8) exchange<4>(rows);
  if constexpr (VL >= 4) exchange<2>(rows);
  exchange<1>(rows);
}

// feature by feature -> token by token: out[token] holds `width` vectors, entries beyond C are zero
static void by_token(const vec* in, long C, long nv, long ld, vec* out, long width) {
  for (long w = 0; w < width; ++w)
    for (long v = 0; v < nv; ++v) {
      vec rows[VL];
#pragma GCC unroll 16
      for (long i = 0; i < VL; ++i) rows[i] = w * VL + i < C ? in[(w * VL + i) * ld + v] : vec{};
      transpose(rows);
#pragma GCC unroll 16
      for (long i = 0; i < VL; ++i) out[(v * VL + i) * width + w] = rows[i];
    }
}

// out[m rs + (n VL + lane) cs] += sum over tokens of a[m][token] b[token][n][lane], `last` lanes of the last vector
template <int M, int N>
INLINE void outer_tile(const R* a, long step, const vec* b, long width, long tokens, R* out, long rs, long cs, long last,
                       bool first) {
  vec sum[M][N];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sum[m][n] = vec{};
  for (long i = 0; i < tokens; ++i) {
    vec y[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) y[n] = b[i * width + n];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const vec x = all(a[m * step + i]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sum[m][n] += x * y[n];
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const long lanes = n + 1 < N ? VL : last;
      R* to = out + m * rs + n * VL * cs;
      if (cs == 1 && lanes == VL) {
        vec before = vec{};
        if (!first) std::memcpy(&before, to, sizeof(vec));
        before += sum[m][n];
        std::memcpy(to, &before, sizeof(vec));
      } else {
        for (long l = 0; l < lanes; ++l) to[l * cs] = (first ? R(0) : to[l * cs]) + sum[m][n][l];
      }
    }
}

template <int N>
INLINE void outer_columns(const R* a, long K, long step, const vec* b, long width, long tokens, R* out, long rs, long cs,
                          long last, bool first) {
  long k = 0;
  for (; k + ROWS <= K; k += ROWS)
    outer_tile<ROWS, N>(a + k * step, step, b, width, tokens, out + k * rs, rs, cs, last, first);
#define LAST(M) \
  case M: outer_tile<M, N>(a + k * step, step, b, width, tokens, out + k * rs, rs, cs, last, first); break;
  switch (K - k) { LAST(1) LAST(2) LAST(3) LAST(4) LAST(5) }
#undef LAST
}

void outer(const vec* a, long K, const vec* b, long C, long tokens, long ld, R* out, long rs, long cs, vec* scratch,
           bool first) {
  if (K > C) {  // vectors along the longer side
    outer(b, C, a, K, tokens, ld, out, cs, rs, scratch, first);
    return;
  }
  const long width = (C + VL - 1) / VL, step = ld * VL;
  by_token(b, C, (tokens + VL - 1) / VL, ld, scratch, width);
  const R* rows = (const R*)a;
  long w = 0;
  for (; w + COLUMNS <= width; w += COLUMNS)
    outer_columns<COLUMNS>(rows, K, step, scratch + w, width, tokens, out + w * VL * cs, rs, cs,
                           w + COLUMNS == width ? C - (width - 1) * VL : VL, first);
  R* to = out + w * VL * cs;
  const long last = C - (width - 1) * VL;
  switch (width - w) {
    case 1: outer_columns<1>(rows, K, step, scratch + w, width, tokens, to, rs, cs, last, first); break;
    case 2: outer_columns<2>(rows, K, step, scratch + w, width, tokens, to, rs, cs, last, first); break;
    case 3: outer_columns<3>(rows, K, step, scratch + w, width, tokens, to, rs, cs, last, first); break;
  }
}
