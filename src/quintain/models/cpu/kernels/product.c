/* Products of a few rows with weights that are laid out once for many products, for sampling.

   Weights [n, k] lie in blocks of 16 columns of the result, each stored [k][16], the last filled up with zeros. Every
   sum runs over k in order, so a row's result does not depend on the other rows. */
#include "kernels.h"
#include "tiles.h"

#define SPAN 4      /* blocks that are worked on at once */
#define RESIDENT 256 /* rows that stay in the processor's cache meanwhile */

/* out[r][0 .. count) = sums + bias + residual; the last two may be NULL */
INLINE void finished(
    const float *sums, const float *bias, const float *residual, float *out, int64_t count) {
    for (int64_t c = 0; c < count; c++)
        out[c] = sums[c] + (bias ? bias[c] : 0) + (residual ? residual[c] : 0);
}

/* out[r][0 .. 16) = silu(gate) * up of the sums of a block of the one and a block of the other */
INLINE void finished_gate(const float *sums, float *out, int64_t count) {
    float active[BLOCK];
    for (int c = 0; c < BLOCK; c += LANES) {
        vec gate = load(sums + c);
        store(active + c, gate / (1.0f + exponential(-gate)) * load(sums + BLOCK + c));
    }
    memcpy(out, active, count * sizeof(float));
}

/* out[m, n] = x[m, k] . weights + bias[n] + residual[m, n]. With `gated`, blocks of gate and up take turns and
   out[m, n] = silu(gate) * up, without bias and residual. */
int qt_product(
    const float *x, const void *weights, const float *bias, const float *residual, float *out, int64_t m, int64_t k,
    int64_t n, int64_t gated) {
    int64_t blocks = rounded(n, BLOCK) / BLOCK * (gated ? 2 : 1), spans = (blocks + SPAN - 1) / SPAN;
#pragma omp parallel if (m * k * n > 100000)
    for (int64_t from = 0; from < m; from += RESIDENT) {
        int64_t to = from + RESIDENT < m ? from + RESIDENT : m;
#pragma omp for schedule(static) nowait
        for (int64_t span = 0; span < spans; span++) {
            int64_t first = span * SPAN, width = blocks - first < SPAN ? blocks - first : SPAN;
            float sums[FEW * SPAN * BLOCK];
            for (int64_t row = from; row < to; row += FEW) {
                int num = to - row < FEW ? (int)(to - row) : FEW;
                const float *rows[FEW];
                for (int r = 0; r < num; r++) rows[r] = x + (row + r) * k;
                products_of(rows, num, (const float *)weights + first * BLOCK * k, width, k, sums, SPAN * BLOCK);
                for (int r = 0; r < num; r++) {
                    const float *sum = sums + r * SPAN * BLOCK;
                    int64_t column = (gated ? first / 2 : first) * BLOCK, place = (row + r) * n + column;
                    if (!gated) {
                        int64_t count = n - column < width * BLOCK ? n - column : width * BLOCK;
                        finished(sum, bias ? bias + column : 0, residual ? residual + place : 0, out + place, count);
                        continue;
                    }
                    for (int64_t b = 0; b < width; b += 2) {
                        int64_t at = b / 2 * BLOCK, left = n - column - at;
                        finished_gate(sum + b * BLOCK, out + place + at, left < BLOCK ? left : BLOCK);
                    }
                }
            }
        }
    }
    return 0;
}
