/* The kernels that other kernels call; each is described where it is defined. */
#ifndef QUINTAIN_KERNELS_H
#define QUINTAIN_KERNELS_H

#include <stdint.h>

int qt_product(
    const float *x, const void *weights, const float *bias, const float *residual, float *out, int64_t m, int64_t k,
    int64_t n, int64_t gated);
int qt_product_half(
    const float *x, const void *weights, const float *bias, const float *residual, float *out, int64_t m, int64_t k,
    int64_t n, int64_t gated);
void qt_rms_norm(const float *x, const float *w, float *y, float *scales, int64_t n, int64_t d, float eps);
void qt_gated(const float *joined, float *out, int64_t n, int64_t width);
void qt_heads(
    const float *joined, const float *query_norm, const float *key_norm, const float *cosine, const float *sine,
    const int64_t *positions, float eps, float *query, float *key, float *scales, int64_t n, int64_t heads,
    int64_t kv, int64_t d);

#endif
