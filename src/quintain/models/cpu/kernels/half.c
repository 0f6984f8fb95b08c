/* Products with weights of 16 bits (bfloat16), summed in 32: half the memory of `qt_product`, and twice as many products at
   a time where the processor has the instruction (AVX512-BF16).

   Weights [n, k] lie in blocks of 16 columns of the result, each stored [k / 2][16][2]: two neighbours along k in 32 bits. Every
   sum runs over k in order, so a row's result does not depend on the other rows. */
#include "half.h"
#include "kernels.h"

#define SPAN 4       /* blocks that are worked on at once */
#define AHEAD 32     /* rows of a block that are fetched before they are needed */
#define RESIDENT 256 /* rows that stay in the processor's cache meanwhile */

/* out[m, n] = x[m, k] . weights + bias[n] + residual[m, n], the last two NULL or there. With `gated`, blocks of
   gate and up take turns and out[m, n] = silu(gate) * up, without bias and residual. */
int qt_product_half(
    const float *x, const void *weights, const float *bias, const float *residual, float *out, int64_t m, int64_t k,
    int64_t n, int64_t gated) {
    int64_t halves = (k + 1) / 2;
    int64_t blocks = rounded(n, BLOCK) / BLOCK * (gated ? 2 : 1), spans = (blocks + SPAN - 1) / SPAN;
    pair *inputs = malloc((m * halves + 1) * sizeof(pair));
    if (!inputs) return 1;
#pragma omp parallel if (m * k * n > 100000)
    {
#pragma omp for schedule(static)
    for (int64_t row = 0; row < m; row++) to_half(x + row * k, k, inputs + row * halves);
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
                half_products(rows, num, (const pair *)weights + first * BLOCK * halves, width, halves, BLOCK, halves * BLOCK,
                              row == from ? AHEAD * BLOCK : 0, 0, sums, SPAN * BLOCK);
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
