/* Numbers of 16 bits (bfloat16), two neighbours in 32 bits, and their products, summed in 32: half the memory, and twice as
   many products at a time where the processor has the instruction (AVX512-BF16). */
#ifndef QUINTAIN_HALF_H
#define QUINTAIN_HALF_H

#include "tiles.h"
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

typedef uint32_t pair; /* two neighbours, the first in the lower half */

/* The nearest number of 16 bits, ties to even; what is no number stays none. */
INLINE uint16_t nearest(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0 : (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

INLINE float widened(uint16_t x) {
    pair bits = (pair)x << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* sum + row[0] * keys[..][0] + row[1] * keys[..][1] */
INLINE vec added(vec sum, pair row, const pair *keys) {
#ifdef __AVX512BF16__
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)row), (__m512bh)_mm512_loadu_si512(keys));
#else
    ivec both;
    memcpy(&both, keys, sizeof both);
    return sum + widened(row & 0xffff) * (vec)(both << 16) + widened(row >> 16) * (vec)(both & (int32_t)0xffff0000);
#endif
}

/* sums[row][16 * blocks] = rows[row][2 * halves] . blocks, for `num` <= FEW rows, or added to them if `is_added`. A row of
   16 pairs of a block is `step` pairs after the one before it, and a block `apart` pairs. What is read for the first time
   comes from memory, and is fetched so many pairs `ahead` of its use; 0 where it lies in the cache. */
INLINE void half_products(
    const pair *const *rows, int num, const pair *blocks, int64_t num_blocks, int64_t halves, int64_t step, int64_t apart,
    int64_t ahead, int is_added, float *sums, int64_t stride) {
    int width;
    for (int64_t b = 0; b < num_blocks * PER; b += width) {
        const pair *block = blocks + b / PER * apart;
        width = next_width(num_blocks * PER - b, num);
#define DOT(ROWS, COLUMNS)                                                                  \
    {                                                                                       \
        vec sum[ROWS][COLUMNS];                                                             \
        for (int r = 0; r < ROWS; r++)                                                      \
            for (int c = 0; c < COLUMNS; c++)                                               \
                sum[r][c] = is_added ? load(sums + r * stride + (b + c) * LANES) : spread(0); \
        for (int64_t i = 0; i < halves; i++) {                                              \
            const pair *key = block + i * step;                                             \
            if (ahead) for (int c = 0; c < COLUMNS; c += PER)                               \
                __builtin_prefetch(key + c / PER * apart + ahead);                          \
            for (int r = 0; r < ROWS; r++)                                                  \
                for (int c = 0; c < COLUMNS; c++)                                           \
                    sum[r][c] = added(sum[r][c], rows[r][i], key + c / PER * apart + (b + c) % PER * LANES); \
        }                                                                                   \
        for (int r = 0; r < ROWS; r++)                                                      \
            for (int c = 0; c < COLUMNS; c++)                                               \
                store(sums + r * stride + (b + c) * LANES, sum[r][c]);                      \
    }
        BY_SIZE(DOT, num, width)
#undef DOT
    }
}

/* A row of k floats, rounded, the last pair filled up with 0. */
INLINE void to_half(const float *from, int64_t k, pair *to) {
    int64_t i = 0;
#ifdef __AVX512BF16__
    for (; i + 16 <= k; i += 16)
        _mm256_storeu_si256((__m256i *)(to + i / 2), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + i)));
#endif
    for (; i < k; i += 2) to[i / 2] = nearest(from[i]) | (pair)(i + 1 < k ? nearest(from[i + 1]) : 0) << 16;
}

#define TOKENS_AHEAD 12 /* tokens whose values are fetched before they are needed */

/* Puts key[d] and value[d] of a token to its position: keys [positions / 16][d / 2][16][2], values
   [positions / 2][padded][2]. The neighbour of the last token of a stream is 0, not what stood there before. */
INLINE void half_kept(
    const float *key, const float *value, int64_t d, int64_t position, int is_last, pair *keys, pair *values) {
    pair *block = keys + position / BLOCK * BLOCK * d / 2 + position % BLOCK;
    uint16_t *to = (uint16_t *)(values + position / 2 * rounded(d, BLOCK)) + position % 2;
    for (int64_t i = 0; i < d; i += 2) block[i / 2 * BLOCK] = nearest(key[i]) | (pair)nearest(key[i + 1]) << 16;
    for (int64_t i = 0; i < d; i++) to[2 * i] = nearest(value[i]);
    if (is_last && position % 2 == 0)
        for (int64_t i = 0; i < d; i++) to[2 * i + 1] = 0;
}

typedef struct {
    float *scores, *mixed; /* [FEW, room] and [FEW, padded] */
    pair *halves;          /* [FEW * (room + d) / 2], scores and rows in 16 bits */
    int64_t room;
} Scratch;

/* m->mixed[num, padded] += the values of `reach` tokens by the softmax of rows[num, d] . keys over the first allowed[num]
   of them. The first `near` tokens are read from `their` keys and values; `sums` [num], NULL or the log of the sums of
   exponentials. Rows and weights are rounded; sampling and
   training both come here, so that the one says what the other does to the bit. */
OPTIONAL static void half_attended(
    const float *const *rows, int num, const int64_t *allowed, int64_t reach, int64_t near, int64_t d, const pair *keys,
    const pair *their_keys, const pair *values, const pair *their_values, int is_first, const Scratch *m,
    float *sums) {
    int64_t halves = d / 2, padded = rounded(d, BLOCK), room = m->room, block = halves * BLOCK, last = allowed[num - 1];
    int64_t from_leader = near < last ? near : last;
    int64_t ahead = is_first ? 4 * block : 0, ahead_values = is_first ? TOKENS_AHEAD / 2 * padded : 0;
    const pair *half_rows[FEW], *weights[FEW], *near_weights[FEW];
    for (int j = 0; j < num; j++) {
        pair *row = m->halves + FEW * room / 2 + j * halves;
        to_half(rows[j], d, row);
        half_rows[j] = row;
    }
    half_products(half_rows, num, their_keys, near / BLOCK, halves, BLOCK, block, ahead, 0, m->scores, room);
    half_products(half_rows, num, keys + near * halves, (reach - near) / BLOCK, halves, BLOCK, block, ahead, 0,
                  m->scores + near, room);
    for (int j = 0; j < num; j++) {
        pair *row = m->halves + j * room / 2;
        float sum = softened(m->scores + j * room, allowed[j], reach, 1.0f / sqrtf((float)d));
        if (sums) sums[j] = sum;
        to_half(m->scores + j * room, reach, row);
        weights[j] = row, near_weights[j] = row + near / 2;
    }
    half_products(weights, num, their_values, padded / BLOCK, (from_leader + 1) / 2, padded, BLOCK, ahead_values, 1,
                  m->mixed, padded);
    half_products(near_weights, num, values + near * padded / 2, padded / BLOCK, (last - from_leader + 1) / 2, padded,
                  BLOCK, ahead_values, 1, m->mixed, padded);
}

#endif
