// What every generated kernel uses. Numbers are of type R (float or double).
#pragma once
//
// Lanes that tokens hold are kept feature by feature: row f of a block holds entry f of `nv` vectors of VL tokens each,
// and rows are `ld` vectors apart. So every operation runs along tokens, whatever the sizes of the network, and weights
// are read in place, entry by entry. Matrix products are made of register tiles.
#define R REAL
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <type_traits>
#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include <immintrin.h>
#define VECTOR_BYTES 64
#define ROWS 6
#define COLUMNS 4
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define ROWS 4
#define COLUMNS 3
#else
#define VECTOR_BYTES 16
#define ROWS 4
#define COLUMNS 2
#endif

typedef R vec __attribute__((vector_size(VECTOR_BYTES), may_alias));
static const long VL = VECTOR_BYTES / sizeof(R);
#define INLINE static inline __attribute__((always_inline))

INLINE vec all(R value) { return vec{} + value; }

INLINE R lanes_sum(vec a) {
  R total = 0;
  for (long i = 0; i < VL; ++i) total += a[i];
  return total;
}

// a shared matrix times a lane of the tokens: out[o] = beta bias[o] + alpha sum over c of W[o rs + c cs] in[c]
void times(const R* W, long rs, long cs, long O, long C, const vec* in, vec* out, long nv, long ld, R alpha, const R* bias,
           R beta);

// out[k rs + c cs] += sum over tokens of a[k] b[c], or =, if first; scratch: room for the longer of them, token by token
void outer(const vec* a, long K, const vec* b, long C, long tokens, long ld, R* out, long rs, long cs, vec* scratch,
           bool first);

INLINE R dot(const vec* a, const vec* b, long nv) {
  vec sum = vec{};
  for (long v = 0; v < nv; ++v) sum += a[v] * b[v];
  return lanes_sum(sum);
}

INLINE R total(const vec* a, long nv) {
  vec sum = vec{};
  for (long v = 0; v < nv; ++v) sum += a[v];
  return lanes_sum(sum);
}

// e^x for x <= 0: x = k log 2 + r with a whole number k, which 1.5 * 2^52 (or 2^23) + k holds in its last bits; e^r by its
// series; below the smallest normal number, that.
INLINE vec exponential(vec x) {
  typedef std::conditional<sizeof(R) == 8, int64_t, int32_t>::type whole;
  typedef whole wholes __attribute__((vector_size(VECTOR_BYTES), may_alias));
  constexpr bool wide = sizeof(R) == 8;
  constexpr R shift = wide ? R(0x1.8p52) : R(0x1.8p23), least = wide ? R(-708) : R(-87);
  constexpr R high = wide ? R(0x1.62e42feep-1) : R(0.693359375);
  constexpr R low = wide ? R(0x1.a39ef35793c76p-33) : R(-2.12194440054690583e-4);
  constexpr int terms = wide ? 13 : 7, exponent = wide ? 52 : 23, bias = wide ? 1023 : 127;
  constexpr double factorials[] = {1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800, 479001600, 6227020800};
  x = x < least ? all(least) : x;
  const vec moved = x * R(1.4426950408889634074) + shift, k = moved - shift;
  const vec r = (x - k * high) - k * low;
  vec sum = all(R(1.0 / factorials[terms]));
#pragma GCC unroll 16
  for (int i = terms - 1; i >= 0; --i) sum = sum * r + R(1.0 / factorials[i]);
  return sum * (vec)(((wholes)moved + bias) << exponent);
}

// the softmax of K rows
INLINE void normalise(const vec* in, vec* out, long K, long nv, long ld) {
  for (long v = 0; v < nv; ++v) {
    vec largest = in[v], sum = vec{};
    for (long k = 1; k < K; ++k) largest = in[k * ld + v] > largest ? in[k * ld + v] : largest;
    for (long k = 0; k < K; ++k) sum += out[k * ld + v] = exponential(in[k * ld + v] - largest);
    for (long k = 0; k < K; ++k) out[k * ld + v] /= sum;
  }
}

// slope * (clamp(t, low, high) - start), on vectors and on numbers
INLINE vec piece(vec t, R slope, R low, R high, R start) {
  t = t < low ? all(low) : t;
  t = t > high ? all(high) : t;
  return (t - start) * slope;
}
INLINE R piece(R t, R slope, R low, R high, R start) {
  t = t < low ? low : t;
  t = t > high ? high : t;
  return (t - start) * slope;
}

// A table of cells: F functions, each with x, y, s, d in every cell; f(t) = y + s (t - x) + d relu(t - x).
INLINE long cell(R t, R inverse, R offset, R last) {
  R place = t * inverse + offset;
  place = place > 0 ? place : R(0);  // also what is not a number
  place = place < last ? place : last;
  return (long)place;
}

// A function without cells: pieces end, x, y, s with f(t) = y + s (t - x) up to the end; bisection.
INLINE R search(const R* pieces, R last, R t) {
  long low = 0, high = (long)last;
  while (low < high) {
    const long middle = (low + high) / 2;
    if (t <= pieces[4 * middle])
      high = middle;
    else
      low = middle + 1;
  }
  const R* piece = pieces + 4 * low;
  return piece[2] + piece[3] * (t - piece[1]);
}
INLINE vec search(const R* pieces, R last, vec t) {
  for (long i = 0; i < VL; ++i) t[i] = search(pieces, last, t[i]);
  return t;
}

// out[f][at] = f(t), of a number and of a vector
template <int F>
INLINE void look_up(const R* records, R inverse, R offset, R last, R t, R* const* out, long at) {
  const R* record = records + cell(t, inverse, offset, last) * 4 * F;
  for (int f = 0; f < F; ++f, record += 4) {
    const R u = t - record[0];
    out[f][at] = record[1] + record[2] * u + record[3] * (u > 0 ? u : R(0));
  }
}

template <int F>
INLINE void look_up(const R* records, R inverse, R offset, R last, vec t, vec* const* out, long at) {
#if VECTOR_BYTES == 64
  if constexpr (sizeof(R) == 4) {
    __m512 place = _mm512_fmadd_ps((__m512)t, _mm512_set1_ps(inverse), _mm512_set1_ps(offset));
    place = _mm512_min_ps(_mm512_max_ps(place, _mm512_setzero_ps()), _mm512_set1_ps(last));
    alignas(64) int32_t index[16];
    _mm512_store_si512(index, _mm512_slli_epi32(_mm512_cvttps_epi32(place), F == 1 ? 2 : 3));
    for (int f = 0; f < F; ++f) {
      const float* base = (const float*)records + 4 * f;
      __m512 part[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        __m512 p = _mm512_castps128_ps512(_mm_load_ps(base + index[j]));
        p = _mm512_insertf32x4(p, _mm_load_ps(base + index[4 + j]), 1);
        p = _mm512_insertf32x4(p, _mm_load_ps(base + index[8 + j]), 2);
        part[j] = _mm512_insertf32x4(p, _mm_load_ps(base + index[12 + j]), 3);
      }
      __m512 a = _mm512_unpacklo_ps(part[0], part[1]), b = _mm512_unpackhi_ps(part[0], part[1]);
      __m512 c = _mm512_unpacklo_ps(part[2], part[3]), d = _mm512_unpackhi_ps(part[2], part[3]);
      __m512 x = (__m512)_mm512_unpacklo_pd((__m512d)a, (__m512d)c);
      __m512 y = (__m512)_mm512_unpackhi_pd((__m512d)a, (__m512d)c);
      __m512 s = (__m512)_mm512_unpacklo_pd((__m512d)b, (__m512d)d);
      __m512 k = (__m512)_mm512_unpackhi_pd((__m512d)b, (__m512d)d);
      __m512 u = _mm512_sub_ps((__m512)t, x);
      __m512 value = _mm512_fmadd_ps(s, u, y);
      out[f][at] = (vec)_mm512_fmadd_ps(k, _mm512_max_ps(u, _mm512_setzero_ps()), value);
    }
    return;
  } else {
    __m512d place = _mm512_fmadd_pd((__m512d)t, _mm512_set1_pd(inverse), _mm512_set1_pd(offset));
    place = _mm512_min_pd(_mm512_max_pd(place, _mm512_setzero_pd()), _mm512_set1_pd(last));
    alignas(64) int64_t index[8];
    _mm512_store_si512(index, _mm512_slli_epi64(_mm512_cvttpd_epi64(place), F == 1 ? 2 : 3));
    for (int f = 0; f < F; ++f) {
      const double* base = (const double*)records + 4 * f;
      __m512d part[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
        part[j] = _mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_loadu_pd(base + index[j])),
                                     _mm256_loadu_pd(base + index[4 + j]), 1);
      // 4 x 4 transposes within the halves
      __m512d a = _mm512_unpacklo_pd(part[0], part[1]), b = _mm512_unpackhi_pd(part[0], part[1]);
      __m512d c = _mm512_unpacklo_pd(part[2], part[3]), d = _mm512_unpackhi_pd(part[2], part[3]);
      const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
      const __m512i high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
      __m512d x = _mm512_permutex2var_pd(a, low, c), s = _mm512_permutex2var_pd(a, high, c);
      __m512d y = _mm512_permutex2var_pd(b, low, d), k = _mm512_permutex2var_pd(b, high, d);
      __m512d u = _mm512_sub_pd((__m512d)t, x);
      __m512d value = _mm512_fmadd_pd(s, u, y);
      out[f][at] = (vec)_mm512_fmadd_pd(k, _mm512_max_pd(u, _mm512_setzero_pd()), value);
    }
    return;
  }
#else
  R* entries[F];
  for (int f = 0; f < F; ++f) entries[f] = (R*)(out[f] + at);
  for (long i = 0; i < VL; ++i) look_up<F>(records, inverse, offset, last, t[i], entries, i);
#endif
}

// smallest and largest number; what is not a number stays
INLINE void extremes(const R* numbers, long count, R* range) {
  for (long i = 0; i < count; ++i) {
    const R x = numbers[i];
    if (x < range[0] || x != x) range[0] = x;
    if (x > range[1] || x != x) range[1] = x;
  }
}

// the same for the first n tokens of some rows
static void extremes(const vec* rows, long count, long ld, long n, R* range) {
  vec low = all(range[0]), high = all(range[1]);
  for (long f = 0; f < count; ++f)
    for (long v = 0; v < n / VL; ++v) {
      const vec x = rows[f * ld + v];
      low = (x < low) | (x != x) ? x : low;
      high = (x > high) | (x != x) ? x : high;
    }
  if (n >= VL && count) {
    R unused = 0;
    R lows[2] = {range[0], unused}, highs[2] = {unused, range[1]};
    extremes((const R*)&low, VL, lows);
    extremes((const R*)&high, VL, highs);
    range[0] = lows[0], range[1] = highs[1];
  }
  if (n % VL)
    for (long f = 0; f < count; ++f) extremes((const R*)(rows + f * ld + n / VL), n % VL, range);
}
