/* The last step: from logits to log-probs, entropies and sampled tokens, in one or two passes over each row. */
#include "vector.h"

INLINE float peak(const float *x, int64_t n) {
    float most = -INFINITY;
    int64_t i = 0;
    vec best = spread(-INFINITY);
    for (; i + LANES <= n; i += LANES) best = larger(load(x + i), best);
    most = largest(best);
    for (; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* For logits[m, v] / temperature: log-prob of chosen[m], entropy[m], log of the sum of exponentials[m]. */
void qt_logprobs(
    const float *logits, const int64_t *chosen, float temperature, float *logprobs, float *entropies, float *sums,
    int64_t m, int64_t v) {
    float inverse = 1.0f / temperature;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < m; row++) {
        const float *x = logits + row * v;
        float top = peak(x, v);
        vec all = spread(0), weighted = spread(0);
        int64_t i = 0;
        for (; i + LANES <= v; i += LANES) {
            vec z = (load(x + i) - top) * inverse, e = exponential(z);
            all += e;
            weighted += e * z;
        }
        float sum = total(all), expected = total(weighted);
        for (; i < v; i++) {
            float z = (x[i] - top) * inverse, e = expf(z);
            sum += e;
            expected += e > 0 ? e * z : 0;
        }
        float log_sum = logf(sum);
        logprobs[row] = (x[chosen[row]] - top) * inverse - log_sum;
        entropies[row] = log_sum - expected / sum;
        sums[row] = top * inverse + log_sum;
    }
}

/* dlogits[m, v] from the gradients of log-probs and entropies. */
void qt_logprobs_backward(
    const float *logits, const int64_t *chosen, float temperature, const float *entropies, const float *sums,
    const float *dlogprobs, const float *dentropies, float *dlogits, int64_t m, int64_t v) {
    float inverse = 1.0f / temperature;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < m; row++) {
        const float *x = logits + row * v;
        float *to = dlogits + row * v, dlog = dlogprobs[row] * inverse, dentropy = dentropies[row] * inverse;
        int64_t i = 0;
        for (; i + LANES <= v; i += LANES) {
            vec log = load(x + i) * inverse - sums[row], p = exponential(log);
            store(to + i, -p * (dlog + dentropy * (log + entropies[row])));
        }
        for (; i < v; i++) {
            float log = x[i] * inverse - sums[row], p = expf(log);
            to[i] = -p * (dlog + dentropy * (log + entropies[row]));
        }
        to[chosen[row]] += dlog;
    }
}

/* One token per row of logits[m, v] by inverse CDF of numbers[m]; temperature 0 takes the most likely one. */
int qt_sample(
    const float *logits, const float *temperatures, const double *numbers, int64_t *chosen, float *logprobs,
    int64_t m, int64_t v) {
    int failed = 0;
    int64_t width = rounded(v, LANES);
#pragma omp parallel reduction(| : failed)
    {
        float *weights = floats(width);
        failed |= !weights;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < m; row++) {
            if (!weights) continue;
            const float *x = logits + row * v;
            float top = peak(x, v), inverse = temperatures[row] > 0 ? 1.0f / temperatures[row] : 1.0f;
            double sum = 0, seen = 0;
            int64_t i = 0, token = v - 1, last = 0;
            for (; i + LANES <= v; i += LANES) store(weights + i, exponential((load(x + i) - top) * inverse));
            for (; i < v; i++) weights[i] = expf((x[i] - top) * inverse);
            for (i = 0; i < v; i += LANES) sum += (double)total(load(weights + i));
            if (temperatures[row] > 0) {
                double target = numbers[row] * sum;
                for (i = 0; i < v; i += LANES) {
                    double block = (double)total(load(weights + i));
                    if (seen + block > target) break;
                    seen += block;
                }
                for (last = i; i < v && i < last + LANES; i++) {
                    seen += (double)weights[i];
                    if (seen > target && weights[i] > 0) break;
                }
                token = i < v ? i : v - 1;
                while (token > 0 && weights[token] == 0) token--;
            } else {
                for (token = 0; token < v - 1 && !(x[token] == top); token++) {}
            }
            chosen[row] = token;
            logprobs[row] = (x[token] - top) * inverse - (float)log(sum);
        }
        free(weights);
    }
    return failed;
}
