/* What is done row by row between two matrix products: norms, gated activation, head norms and rotation. */
#include "kernels.h"
#include "vector.h"
#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_max_threads(void) { return 1; }
static int omp_get_thread_num(void) { return 0; }
static int omp_get_num_threads(void) { return 1; }
#endif

#define ENOUGH 8000 /* floats below which a second thread does not pay */

INLINE float squares(const float *x, int64_t d) {
    vec sum = spread(0);
    int64_t i = 0;
    for (; i + LANES <= d; i += LANES) sum += load(x + i) * load(x + i);
    float rest = total(sum);
    for (; i < d; i++) rest += x[i] * x[i];
    return rest;
}

/* sum of a * b * c */
INLINE float triple(const float *a, const float *b, const float *c, int64_t d) {
    vec sum = spread(0);
    int64_t i = 0;
    for (; i + LANES <= d; i += LANES) sum += load(a + i) * load(b + i) * load(c + i);
    float rest = total(sum);
    for (; i < d; i++) rest += a[i] * b[i] * c[i];
    return rest;
}

/* y = x * scale * w, with scale = 1 / rms(x) kept in scales (may be NULL) */
void qt_rms_norm(const float *x, const float *w, float *y, float *scales, int64_t n, int64_t d, float eps) {
#pragma omp parallel for schedule(static) if (n * d > ENOUGH)
    for (int64_t row = 0; row < n; row++) {
        const float *in = x + row * d;
        float *out = y + row * d;
        float scale = 1.0f / sqrtf(squares(in, d) / d + eps);
        int64_t i = 0;
        for (; i + LANES <= d; i += LANES) store(out + i, load(in + i) * scale * load(w + i));
        for (; i < d; i++) out[i] = in[i] * scale * w[i];
        if (scales) scales[row] = scale;
    }
}

/* dx of one row, and dw added to; dy, x, w, dx, dw: [d] */
INLINE void norm_backward(
    const float *dy, const float *x, const float *w, float scale, float *dx, float *dw, int64_t d) {
    float inner = triple(dy, w, x, d) * scale * scale / d;
    int64_t i = 0;
    for (; i + LANES <= d; i += LANES) {
        vec grad = load(dy + i), value = load(x + i);
        store(dw + i, load(dw + i) + grad * value * scale);
        store(dx + i, (grad * load(w + i) - value * inner) * scale);
    }
    for (; i < d; i++) {
        float grad = dy[i];
        dw[i] += grad * x[i] * scale;
        dx[i] = (grad * w[i] - x[i] * inner) * scale;
    }
}

/* Adds parts[threads][d] to out[d] in the order of the threads. */
static void gathered(const float *parts, int64_t threads, float *out, int64_t d) {
    for (int64_t i = 0; i < d; i++) {
        float sum = 0;
        for (int64_t t = 0; t < threads; t++) sum += parts[t * d + i];
        out[i] = sum;
    }
}

int qt_rms_norm_backward(
    const float *dy, const float *x, const float *w, const float *scales, float *dx, float *dw, int64_t n,
    int64_t d) {
    int64_t threads = omp_get_max_threads();
    float *parts = floats(threads * d);
    if (!parts) return 1;
#pragma omp parallel if (n * d > ENOUGH)
    {
        float *mine = parts + omp_get_thread_num() * d;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < n; row++)
            norm_backward(dy + row * d, x + row * d, w, scales[row], dx + row * d, mine, d);
    }
    gathered(parts, threads, dw, d);
    free(parts);
    return 0;
}

/* out[n, width] = silu(gate) * up for joined[n, 2 * width] = (gate, up) */
void qt_gated(const float *joined, float *out, int64_t n, int64_t width) {
#pragma omp parallel for schedule(static) if (n * width > ENOUGH)
    for (int64_t row = 0; row < n; row++) {
        const float *gate = joined + row * 2 * width, *up = gate + width;
        float *to = out + row * width;
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES) {
            vec g = load(gate + i);
            store(to + i, g / (1.0f + exponential(-g)) * load(up + i));
        }
        for (; i < width; i++) to[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
}

void qt_gated_backward(const float *dout, const float *joined, float *djoined, int64_t n, int64_t width) {
#pragma omp parallel for schedule(static) if (n * width > ENOUGH)
    for (int64_t row = 0; row < n; row++) {
        const float *gate = joined + row * 2 * width, *up = gate + width, *grad = dout + row * width;
        float *dgate = djoined + row * 2 * width, *dup = dgate + width;
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES) {
            vec g = load(gate + i), d = load(grad + i);
            vec s = 1.0f / (1.0f + exponential(-g));
            store(dup + i, d * g * s);
            store(dgate + i, d * load(up + i) * s * (1.0f + g * (1.0f - s)));
        }
        for (; i < width; i++) {
            float g = gate[i], s = 1.0f / (1.0f + expf(-g));
            dup[i] = grad[i] * g * s;
            dgate[i] = grad[i] * up[i] * s * (1.0f + g * (1.0f - s));
        }
    }
}

/* Norm (if w) and rotation of one head: out = rotate(x * scale * w); returns the scale. */
INLINE float turned(
    const float *x, const float *w, const float *cosine, const float *sine, float eps, float *out, int64_t d) {
    float scale = w ? 1.0f / sqrtf(squares(x, d) / d + eps) : 1.0f;
    int64_t half = d / 2;
    for (int64_t i = 0; i < half; i++) {
        float a = x[i] * scale * (w ? w[i] : 1.0f), b = x[i + half] * scale * (w ? w[i + half] : 1.0f);
        out[i] = a * cosine[i] - b * sine[i];
        out[i + half] = b * cosine[i + half] + a * sine[i + half];
    }
    return scale;
}

/* joined[n, (heads + 2 kv) d] to query[n, heads, d] and key[n, kv, d]; scales[n, heads + kv].
   cosine, sine: [positions, d] */
void qt_heads(
    const float *joined, const float *query_norm, const float *key_norm, const float *cosine, const float *sine,
    const int64_t *positions, float eps, float *query, float *key, float *scales, int64_t n, int64_t heads,
    int64_t kv, int64_t d) {
#pragma omp parallel for schedule(static) if (n * heads * d > ENOUGH)
    for (int64_t row = 0; row < n; row++) {
        const float *in = joined + row * (heads + 2 * kv) * d;
        const float *c = cosine + positions[row] * d, *s = sine + positions[row] * d;
        float *kept = scales + row * (heads + kv);
        for (int64_t h = 0; h < heads; h++)
            kept[h] = turned(in + h * d, query_norm, c, s, eps, query + (row * heads + h) * d, d);
        for (int64_t h = 0; h < kv; h++)
            kept[heads + h] = turned(in + (heads + h) * d, key_norm, c, s, eps, key + (row * kv + h) * d, d);
    }
}

INLINE void turned_backward(
    const float *dout, const float *x, const float *w, const float *cosine, const float *sine, float scale,
    float *dx, float *dw, float *between, int64_t d) {
    int64_t half = d / 2;
    float *to = w ? between : dx;
    for (int64_t i = 0; i < half; i++) {
        float a = dout[i], b = dout[i + half];
        to[i] = a * cosine[i] + b * sine[i + half];
        to[i + half] = b * cosine[i + half] - a * sine[i];
    }
    if (w) norm_backward(between, x, w, scale, dx, dw, d);
}

/* Gradients of qt_heads: djoined[n, (heads + 2 kv) d] from dquery, dkey and dvalue[n, kv, d]; dnorms[2, d]. */
int qt_heads_backward(
    const float *dquery, const float *dkey, const float *dvalue, const float *joined, const float *query_norm,
    const float *key_norm, const float *cosine, const float *sine, const int64_t *positions, const float *scales,
    float *djoined, float *dnorms, int64_t n, int64_t heads, int64_t kv, int64_t d) {
    int64_t threads = omp_get_max_threads(), width = (heads + 2 * kv) * d;
    float *parts = floats(threads * 3 * d);
    if (!parts) return 1;
#pragma omp parallel if (n * heads * d > ENOUGH)
    {
        float *mine = parts + omp_get_thread_num() * 2 * d;
        float *between = parts + (threads * 2 + omp_get_thread_num()) * d;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < n; row++) {
            const float *in = joined + row * width;
            const float *c = cosine + positions[row] * d, *s = sine + positions[row] * d;
            const float *kept = scales + row * (heads + kv);
            float *to = djoined + row * width;
            for (int64_t h = 0; h < heads; h++)
                turned_backward(dquery + (row * heads + h) * d, in + h * d, query_norm, c, s, kept[h], to + h * d,
                                mine, between, d);
            for (int64_t h = heads; h < heads + kv; h++)
                turned_backward(dkey + (row * kv + h - heads) * d, in + h * d, key_norm, c, s, kept[h], to + h * d,
                                mine + d, between, d);
            memcpy(to + (heads + kv) * d, dvalue + row * kv * d, kv * d * sizeof(float));
        }
    }
    gathered(parts, threads, dnorms, 2 * d);
    free(parts);
    return 0;
}
