/* The three products that attention is made of, a few rows at a time.

   Keys come in blocks of 16, each stored [d][16], so that scores of 16 keys are one vector. Value-like rows are
   [keys][padded], padded to a multiple of 16 floats. */
#ifndef QUINTAIN_TILES_H
#define QUINTAIN_TILES_H

#include "vector.h"

#define FEW 4 /* rows of a small tile, and vectors of columns that it works on at once */

/* scores[row][16 * blocks] = rows[row][d] . keys, for `num` <= FEW rows; every block is 16 * d floats */
INLINE void products_of(
    const float *const *rows, int num, const float *blocks, int64_t num_blocks, int64_t d, float *scores,
    int64_t stride) {
    for (int64_t b = 0; b < num_blocks; b += FEW) {
        int width = num_blocks - b < FEW ? (int)(num_blocks - b) : FEW;
        const float *block = blocks + b * LANES * d;
#define DOT(ROWS, COLUMNS)                                                                  \
    {                                                                                       \
        vec sum[ROWS][COLUMNS];                                                             \
        for (int r = 0; r < ROWS; r++)                                                      \
            for (int c = 0; c < COLUMNS; c++) sum[r][c] = spread(0);                        \
        for (int64_t i = 0; i < d; i++) {                                                   \
            vec key[COLUMNS];                                                               \
            for (int c = 0; c < COLUMNS; c++) key[c] = load(block + (c * d + i) * LANES);   \
            for (int r = 0; r < ROWS; r++)                                                  \
                for (int c = 0; c < COLUMNS; c++) sum[r][c] += rows[r][i] * key[c];         \
        }                                                                                   \
        for (int r = 0; r < ROWS; r++)                                                      \
            for (int c = 0; c < COLUMNS; c++)                                               \
                store(scores + r * stride + (b + c) * LANES, sum[r][c]);                    \
    }
#define DOT_ROWS(COLUMNS)                                                                   \
    switch (num) {                                                                          \
    case 4: DOT(4, COLUMNS) break;                                                          \
    case 3: DOT(3, COLUMNS) break;                                                          \
    case 2: DOT(2, COLUMNS) break;                                                          \
    default: DOT(1, COLUMNS)                                                                \
    }
        switch (width) {
        case 4: DOT_ROWS(4) break;
        case 3: DOT_ROWS(3) break;
        case 2: DOT_ROWS(2) break;
        default: DOT_ROWS(1)
        }
#undef DOT
#undef DOT_ROWS
    }
}

/* out[row][padded] += sum over keys of weights[row][key] * values[key][padded], for `num` <= FEW rows */
INLINE void mix_into(
    const float *weights, int64_t stride, int num, const float *values, int64_t num_keys, int64_t step,
    int64_t padded, float *out) {
    for (int64_t column = 0; column < padded; column += FEW * LANES) {
        int width = (int)((padded - column) / LANES);
        if (width > FEW) width = FEW;
        vec sum[FEW][FEW];
        for (int r = 0; r < FEW; r++)
            for (int c = 0; c < FEW; c++)
                sum[r][c] = r < num && c < width ? load(out + r * padded + column + c * LANES) : spread(0);
#define MIX(ROWS, COLUMNS)                                                                  \
    for (int64_t k = 0; k < num_keys; k++) {                                                \
        const float *value = values + k * step + column;                                    \
        vec part[COLUMNS];                                                                  \
        for (int c = 0; c < COLUMNS; c++) part[c] = load(value + c * LANES);                \
        for (int r = 0; r < ROWS; r++) {                                                    \
            vec weight = spread(weights[r * stride + k]);                                   \
            for (int c = 0; c < COLUMNS; c++) sum[r][c] += weight * part[c];                \
        }                                                                                   \
    }
#define MIX_ROWS(COLUMNS)                                                                   \
    switch (num) {                                                                          \
    case 4: MIX(4, COLUMNS) break;                                                          \
    case 3: MIX(3, COLUMNS) break;                                                          \
    case 2: MIX(2, COLUMNS) break;                                                          \
    default: MIX(1, COLUMNS)                                                                \
    }
        switch (width) {
        case 4: MIX_ROWS(4) break;
        case 3: MIX_ROWS(3) break;
        case 2: MIX_ROWS(2) break;
        default: MIX_ROWS(1)
        }
#undef MIX
#undef MIX_ROWS
        for (int r = 0; r < num; r++)
            for (int c = 0; c < width; c++) store(out + r * padded + column + c * LANES, sum[r][c]);
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
