/* As many floats at a time as a register of the processor holds, in the vector types that GCC and Clang share.
   Loads and stores need no alignment. */
#ifndef QUINTAIN_VECTOR_H
#define QUINTAIN_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16 /* floats of a register */
#elif defined(__aarch64__)
#define LANES 4
#else
#define LANES 8
#endif
#define BLOCK 16 /* what rows and blocks in memory are padded to, whatever the processor */
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

INLINE vec load(const float *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float *p, vec v) { memcpy(p, &v, sizeof v); }

INLINE vec spread(float x) {
    vec zero = {0};
    return zero + x;
}

INLINE vec choose(ivec mask, vec yes, vec no) { return (vec)((mask & (ivec)yes) | (~mask & (ivec)no)); }

INLINE vec larger(vec a, vec b) { return choose(a > b, a, b); }

/* The sum of the lanes, by halves. */
INLINE float total(vec v) {
    float part[LANES];
    memcpy(part, &v, sizeof v);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) part[i] += part[i + half];
    return part[0];
}

INLINE float largest(vec v) {
    float most = v[0];
    for (int i = 1; i < LANES; i++) most = v[i] > most ? v[i] : most;
    return most;
}

/* exp to 2 units in the last place for x <= 88; below -87 it is 0. NaN stays NaN. */
INLINE vec exponential(vec x) {
    const vec round = spread(12582912.0f);
    ivec tiny = x < spread(-87.0f);
    vec shifted = x * spread(1.44269504088896341f) + round;
    vec k = shifted - round;
    vec r = x - k * spread(0.693359375f);
    r = r - k * spread(-2.12194440e-4f);
    vec p = spread(1.9875691500e-4f);
    p = p * r + spread(1.3981999507e-3f);
    p = p * r + spread(8.3334519073e-3f);
    p = p * r + spread(4.1665795894e-2f);
    p = p * r + spread(1.6666665459e-1f);
    p = p * r + spread(5.0000001201e-1f);
    p = p * r * r + r + spread(1.0f);
    ivec scaled = (ivec)p + (((ivec)shifted - (ivec)round) << 23);
    ivec unordered = x != x;
    return choose(unordered, x, choose(tiny, spread(0.0f), (vec)scaled));
}

INLINE int64_t rounded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Zeroed memory on a cache line of its own. */
INLINE float *floats(int64_t n) {
    int64_t bytes = rounded(n * (int64_t)sizeof(float), 64);
    float *memory = aligned_alloc(64, bytes ? bytes : 64);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

#endif
