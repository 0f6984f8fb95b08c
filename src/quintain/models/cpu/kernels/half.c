/* Products with weights of 16 bits (bfloat16), summed in 32: half the memory of `qt_product`, and twice as many products at
   a time where the processor has the instruction (AVX512-BF16).

   Weights [n, k] lie in blocks of 16 columns of the result, each stored [k / 2][16][2]: two neighbours along k in 32 bits. Every
   sum runs over k in order, so a row's result does not depend on the other rows. */
#include "tiles.h"
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#define SPAN 4       /* blocks that are worked on at once */
#define AHEAD 32     /* rows of a block that are fetched before they are needed, when it is read for the first time */
#define RESIDENT 256 /* rows that stay in the processor's cache meanwhile */

typedef uint32_t pair; /* two neighbours, the first in the lower half */

/* sum + row[0] * keys[..][0] + row[1] * keys[..][1] */
INLINE vec added(vec sum, pair row, const pair *keys) {
#ifdef __AVX512BF16__
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)row), (__m512bh)_mm512_loadu_si512(keys));
#else
    ivec both;
    float first, second;
    pair low = row << 16, high = row & 0xffff0000u;
    memcpy(&both, keys, sizeof both);
    memcpy(&first, &low, sizeof low);
    memcpy(&second, &high, sizeof high);
    return sum + first * (vec)(both << 16) + second * (vec)(both & (int32_t)0xffff0000);
#endif
}

/* sums[row][16 * blocks] = rows[row][2 * halves] . weights, for `num` <= FEW rows; every block is 16 * halves pairs.
   What `is_first` to be read comes from memory; for the rows after it lies in the cache. */
INLINE void half_products(
    const pair *const *rows, int num, const pair *blocks, int64_t num_blocks, int64_t halves, int is_first,
    float *sums) {
    int width;
    for (int64_t b = 0; b < num_blocks * PER; b += width) {
        const pair *block = blocks + b / PER * BLOCK * halves;
        width = next_width(num_blocks * PER - b, num);
#define DOT(ROWS, COLUMNS)                                                                  \
    {                                                                                       \
        vec sum[ROWS][COLUMNS];                                                             \
        for (int r = 0; r < ROWS; r++)                                                      \
            for (int c = 0; c < COLUMNS; c++) sum[r][c] = spread(0);                        \
        for (int64_t i = 0; i < halves; i++) {                                              \
            const pair *key = block + i * BLOCK;                                            \
            if (is_first) for (int c = 0; c < COLUMNS; c += PER)                            \
                __builtin_prefetch(key + c / PER * halves * BLOCK + AHEAD * BLOCK);         \
            for (int r = 0; r < ROWS; r++)                                                  \
                for (int c = 0; c < COLUMNS; c++)                                           \
                    sum[r][c] = added(sum[r][c], rows[r][i], key + c / PER * halves * BLOCK + (b + c) % PER * LANES); \
        }                                                                                   \
        for (int r = 0; r < ROWS; r++)                                                      \
            for (int c = 0; c < COLUMNS; c++)                                               \
                store(sums + r * SPAN * BLOCK + (b + c) * LANES, sum[r][c]);                \
    }
        BY_SIZE(DOT, num, width)
#undef DOT
    }
}

/* A row of k floats to the nearest of 16 bits, ties to even; what is no number stays none. `to` has an even number. */
INLINE void to_half(const float *from, int64_t k, uint16_t *to) {
    for (int64_t i = 0; i < k; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        uint32_t nearest = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
        to[i] = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0 : (uint16_t)nearest;
    }
    if (k % 2) to[k] = 0;
}

/* out[m, n] = x[m, k] . weights + bias[n] + residual[m, n], the last two NULL or there. With `gated`, blocks of
   gate and up take turns and out[m, n] = silu(gate) * up, without bias and residual. */
int qt_product_half(
    const float *x, const pair *weights, const float *bias, const float *residual, float *out, int64_t m, int64_t k,
    int64_t n, int64_t gated) {
    int64_t halves = (k + 1) / 2;
    int64_t blocks = rounded(n, BLOCK) / BLOCK * (gated ? 2 : 1), spans = (blocks + SPAN - 1) / SPAN;
    pair *inputs = malloc((m * halves + 1) * sizeof(pair));
    if (!inputs) return 1;
#pragma omp parallel if (m * k * n > 100000)
    {
#pragma omp for schedule(static)
    for (int64_t row = 0; row < m; row++) to_half(x + row * k, k, (uint16_t *)(inputs + row * halves));
    for (int64_t from = 0; from < m; from += RESIDENT) {
        int64_t to = from + RESIDENT < m ? from + RESIDENT : m;
#pragma omp for schedule(static) nowait
        for (int64_t span = 0; span < spans; span++) {
            int64_t first = span * SPAN, width = blocks - first < SPAN ? blocks - first : SPAN;
            int64_t column = (gated ? first / 2 : first) * BLOCK, columns = width * BLOCK / (gated ? 2 : 1);
            int64_t count = n - column < columns ? n - column : columns;
            float sums[FEW * SPAN * BLOCK];
            for (int64_t row = from; row < to; row += FEW) {
                int num = to - row < FEW ? (int)(to - row) : FEW;
                const pair *rows[FEW];
                for (int r = 0; r < num; r++) rows[r] = inputs + (row + r) * halves;
                half_products(rows, num, weights + first * BLOCK * halves, width, halves, row == from, sums);
                for (int r = 0; r < num; r++) {
                    const float *sum = sums + r * SPAN * BLOCK;
                    float *to_row = out + (row + r) * n + column;
                    const float *left = residual ? residual + (row + r) * n + column : 0;
                    if (gated) {
                        for (int64_t b = 0; b < width; b += 2) {
                            float active[BLOCK];
                            int64_t at = b / 2 * BLOCK, size = count - at < BLOCK ? count - at : BLOCK;
                            for (int c = 0; c < BLOCK; c += LANES) {
                                vec gate = load(sum + b * BLOCK + c);
                                store(active + c, gate / (1.0f + exponential(-gate)) * load(sum + (b + 1) * BLOCK + c));
                            }
                            memcpy(to_row + at, active, size * sizeof(float));
                        }
                        continue;
                    }
                    for (int64_t c = 0; c < count; c++)
                        to_row[c] = sum[c] + (bias ? bias[column + c] : 0) + (left ? left[c] : 0);
                }
            }
        }
    }
    }
    free(inputs);
    return 0;
}
