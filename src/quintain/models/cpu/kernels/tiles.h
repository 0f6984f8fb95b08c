/* The three products that attention is made of, a few rows at a time.

   Keys come in blocks of 16, each stored [d][16], so that scores of 16 keys are one vector. Value-like rows are
   [keys][padded], padded to a multiple of 16 floats. */
#ifndef QUINTAIN_TILES_H
#define QUINTAIN_TILES_H

#include "vector.h"

#define OPTIONAL __attribute__((unused)) /* not every kernel needs every product */
#define FEW 6              /* rows of a small tile, at most */
#define PER (BLOCK / LANES) /* registers of a row of a block */

/* Columns of a tile, in registers: as many as the registers of the processor hold for so many rows. */
#if LANES == 8
#define WIDE(rows) ((rows) > 2 ? 2 : 4)
#else
#define WIDE(rows) 4
#endif

/* TILE(rows, columns), with both numbers known to the compiler. */
#define BY_COLUMNS(TILE, rows, columns)                                                     \
    switch (columns) {                                                                      \
    case 4: TILE(rows, 4) break;                                                            \
    case 3: TILE(rows, 3) break;                                                            \
    case 2: TILE(rows, 2) break;                                                            \
    default: TILE(rows, 1)                                                                  \
    }
#define BY_SIZE(TILE, rows, columns)                                                        \
    switch (rows) {                                                                         \
    case 6: BY_COLUMNS(TILE, 6, columns) break;                                             \
    case 5: BY_COLUMNS(TILE, 5, columns) break;                                             \
    case 4: BY_COLUMNS(TILE, 4, columns) break;                                             \
    case 3: BY_COLUMNS(TILE, 3, columns) break;                                             \
    case 2: BY_COLUMNS(TILE, 2, columns) break;                                             \
    default: BY_COLUMNS(TILE, 1, columns)                                                   \
    }

INLINE int next_width(int64_t left, int rows) { return left < WIDE(rows) ? (int)left : WIDE(rows); }

/* scores[row][16 * blocks] = rows[row][d] . keys, for `num` <= FEW rows; every block is 16 * d floats */
OPTIONAL static void products_of(
    const float *const *rows, int num, const float *blocks, int64_t num_blocks, int64_t d, float *scores,
    int64_t stride) {
    int width;
    for (int64_t b = 0; b < num_blocks * PER; b += width) {
        const float *block = blocks + b / PER * BLOCK * d;
        width = next_width(num_blocks * PER - b, num);
#define DOT(ROWS, COLUMNS)                                                                  \
    {                                                                                       \
        vec sum[ROWS][COLUMNS];                                                             \
        for (int r = 0; r < ROWS; r++)                                                      \
            for (int c = 0; c < COLUMNS; c++) sum[r][c] = spread(0);                        \
        for (int64_t i = 0; i < d; i++) {                                                   \
            vec key[COLUMNS];                                                               \
            for (int c = 0; c < COLUMNS; c++)                                               \
                key[c] = load(block + (c / PER * d + i) * BLOCK + c % PER * LANES);         \
            if (ROWS <= 2) for (int c = 0; c < COLUMNS; c += PER)                           \
                __builtin_prefetch(block + (c / PER * d + i) * BLOCK + 2 * BLOCK * d);      \
            for (int r = 0; r < ROWS; r++)                                                  \
                for (int c = 0; c < COLUMNS; c++) sum[r][c] += rows[r][i] * key[c];         \
        }                                                                                   \
        for (int r = 0; r < ROWS; r++)                                                      \
            for (int c = 0; c < COLUMNS; c++)                                               \
                store(scores + r * stride + (b + c) * LANES, sum[r][c]);                    \
    }
        BY_SIZE(DOT, num, width)
#undef DOT
    }
}

/* out[row][padded] += sum over keys of weights[row][key] * values[key][padded], for `num` <= FEW rows; a step
   along a row of weights is `along`, from row to row `stride` */
OPTIONAL static void mix_into(
    const float *weights, int64_t stride, int64_t along, int num, const float *values, int64_t num_keys,
    int64_t padded, float *out) {
    int width;
    for (int64_t column = 0; column < padded; column += width * LANES) {
        width = next_width((padded - column) / LANES, num);
#define MIX(ROWS, COLUMNS)                                                                  \
    {                                                                                       \
        vec sum[ROWS][COLUMNS];                                                             \
        for (int r = 0; r < ROWS; r++)                                                      \
            for (int c = 0; c < COLUMNS; c++) sum[r][c] = load(out + r * padded + column + c * LANES); \
        for (int64_t k = 0; k < num_keys; k++) {                                            \
            const float *value = values + k * padded + column;                              \
            vec part[COLUMNS];                                                              \
            for (int c = 0; c < COLUMNS; c++) part[c] = load(value + c * LANES);            \
            if (ROWS <= 2) for (int c = 0; c < COLUMNS; c += PER) __builtin_prefetch(value + c * LANES + 12 * padded); \
            for (int r = 0; r < ROWS; r++) {                                                \
                vec weight = spread(weights[r * stride + k * along]);                       \
                for (int c = 0; c < COLUMNS; c++) sum[r][c] += weight * part[c];            \
            }                                                                               \
        }                                                                                   \
        for (int r = 0; r < ROWS; r++)                                                      \
            for (int c = 0; c < COLUMNS; c++) store(out + r * padded + column + c * LANES, sum[r][c]); \
    }
        BY_SIZE(MIX, num, width)
#undef MIX
    }
}

/* Softmax of scores[0 .. allowed) * scale, in place; 0 up to `end`. Returns log of the sum of exponentials. */
INLINE float softened(float *scores, int64_t allowed, int64_t end, float scale) {
    vec most = spread(-INFINITY), sum = spread(0);
    int64_t whole = allowed / LANES * LANES, i;
    for (i = 0; i < whole; i += LANES) most = larger(load(scores + i), most);
    float top = whole ? largest(most) : -INFINITY;
    for (; i < allowed; i++) top = scores[i] > top ? scores[i] : top;
    for (i = allowed; i < end; i++) scores[i] = -INFINITY;
    for (i = 0; i < rounded(allowed, LANES); i += LANES) {
        vec weight = exponential((load(scores + i) - top) * scale);
        sum += weight;
        store(scores + i, weight);
    }
    for (; i < end; i += LANES) store(scores + i, spread(0));
    float all = total(sum), share = 1.0f / all;
    for (i = 0; i < rounded(allowed, LANES); i += LANES) store(scores + i, load(scores + i) * share);
    return top * scale + logf(all);
}

#endif
