/* Attention over streams that are packed end to end, forward and backward, for training.

   A stream may continue another one, whose tokens it shares with others, and so on: streams form trees, here
   called families. A family comes in depth-first order, so what a stream continues stands in the buffers when
   its turn comes. A family and one key/value head are one unit of work, done by one thread, so the sums do not
   depend on the threads. */
#include "half.h"

#define MANY 24 /* rows of a tile of the backward pass */

typedef struct {
    const int64_t *start, *length, *past; /* of each stream; past: tokens that it continues */
    const int64_t *families; /* [num_families + 1], first stream of each */
    int64_t heads, kv, d;
} Shape;

/* keys[from .. from + count) of head h: transposed blocks, from key `at` on */
static void to_blocks(
    const float *rows, int64_t step, int64_t from, int64_t count, int64_t d, float *blocks, int64_t at) {
    for (int64_t k = 0; k < count; k++) {
        const float *row = rows + (from + k) * step;
        float *to = blocks + (at + k) / BLOCK * BLOCK * d + (at + k) % BLOCK;
        for (int64_t i = 0; i < d; i++) to[i * BLOCK] = row[i];
    }
}

static void to_padded(
    const float *rows, int64_t step, int64_t from, int64_t count, int64_t d, int64_t padded, float *out) {
    for (int64_t k = 0; k < count; k++) memcpy(out + k * padded, rows + (from + k) * step, d * sizeof(float));
}

static int64_t longest_of(const Shape *s, int64_t first, int64_t last) {
    int64_t most = 0;
    for (int64_t i = first; i < last; i++)
        if (s->past[i] + s->length[i] > most) most = s->past[i] + s->length[i];
    return rounded(most, BLOCK);
}

static int forward_unit(
    const Shape *s, const float *query, const float *key, const float *value, int64_t value_step, float *out,
    float *sums, int64_t first, int64_t last, int64_t h, int64_t is_half) {
    int64_t d = s->d, padded = rounded(d, BLOCK), group = s->heads / s->kv, room = longest_of(s, first, last);
    float *blocks = floats(room * (d + padded) + FEW * (room + padded) + (is_half ? FEW * (room + d) / 2 : 0));
    if (!blocks) return 1;
    float *values = blocks + room * d, *scores = values + room * padded, *mixed = scores + FEW * room;
    Scratch m = {scores, mixed, (pair *)(mixed + FEW * padded), room};
    float scale = 1.0f / sqrtf((float)d);
    for (int64_t i = first; i < last; i++) {
        int64_t past = s->past[i], length = s->length[i], start = s->start[i];
        if (is_half) {
            for (int64_t k = 0; k < length; k++)
                half_kept(key + ((start + k) * s->kv + h) * d, value + (start + k) * value_step + h * d, d, past + k,
                          k == length - 1, (pair *)blocks, (pair *)values);
        } else {
            to_blocks(key + h * d, s->kv * d, start, length, d, blocks, past);
            to_padded(value + h * d, value_step, start, length, d, padded, values + past * padded);
        }
        for (int64_t row = 0; row < length * group; row += FEW) {
            int num = length * group - row < FEW ? (int)(length * group - row) : FEW;
            const float *rows[FEW];
            int64_t allowed[FEW];
            float row_sums[FEW];
            for (int r = 0; r < num; r++) {
                rows[r] = query + ((start + (row + r) / group) * s->heads + h * group + (row + r) % group) * d;
                allowed[r] = past + (row + r) / group + 1;
            }
            int64_t reach = rounded(allowed[num - 1], BLOCK);
            memset(mixed, 0, FEW * padded * sizeof(float));
            if (is_half) {
                half_attended(rows, num, allowed, reach, 0, d, (pair *)blocks, (pair *)blocks, (pair *)values,
                              (pair *)values, 0, &m, row_sums);
            } else {
                products_of(rows, num, blocks, reach / BLOCK, d, scores, room);
                for (int r = 0; r < num; r++)
                    row_sums[r] = softened(scores + r * room, allowed[r], reach, scale);
                mix_into(scores, room, 1, num, values, allowed[num - 1], padded, mixed);
            }
            for (int r = 0; r < num; r++) {
                sums[(rows[r] - query) / d] = row_sums[r];
                memcpy(out + (rows[r] - query), mixed + r * padded, d * sizeof(float));
            }
        }
    }
    free(blocks);
    return 0;
}

/* out[n, heads, d] and sums[n, heads] (log-sum-exp); key[n, kv, d]; value has rows of value_step floats. With `is_half`
   queries, keys, values and weights are rounded to 16 bits, as in sampling. */
int qt_packed_attention(
    const float *query, const float *key, const float *value, int64_t value_step, const int64_t *start,
    const int64_t *length, const int64_t *past, const int64_t *families, int64_t num_families, int64_t heads, int64_t kv,
    int64_t d, float *out, float *sums, int64_t is_half) {
    Shape s = {start, length, past, families, heads, kv, d};
    int failed = 0;
#pragma omp parallel for schedule(dynamic) reduction(| : failed)
    for (int64_t unit = 0; unit < num_families * kv; unit++) {
        int64_t family = unit / kv;
        failed |= forward_unit(&s, query, key, value, value_step, out, sums, families[family], families[family + 1],
                               unit % kv, is_half);
    }
    return failed;
}

typedef struct {
    float *blocks, *value_blocks, *keys, *dkey, *dvalue, *weights, *dscores, *grads, *mixed, *rows;
} Gradients;

/* to[key][padded] += sum over rows of weights[row][key] * rows[row][padded] */
INLINE void spread_back(
    const float *weights, int64_t stride, int64_t num_rows, int64_t num_keys, const float *rows, int64_t padded,
    float *to) {
    for (int64_t k = 0; k < num_keys; k += FEW) {
        int num = num_keys - k < FEW ? (int)(num_keys - k) : FEW;
        mix_into(weights + k, 1, stride, num, rows, num_rows, padded, to + k * padded);
    }
}

/* The gradients of a stream's own keys or values, gathered, to their place; the buffer is zero again. */
static void leave(float *from, int64_t padded, int64_t start, int64_t count, int64_t step, int64_t d, float *to) {
    for (int64_t k = 0; k < count; k++) memcpy(to + (start + k) * step, from + k * padded, d * sizeof(float));
    memset(from, 0, count * padded * sizeof(float));
}

static void backward_stream(
    const Shape *s, const Gradients *m, const float *query, const float *out, const float *dout, const float *sums,
    float *dquery, int64_t i, int64_t h, int64_t room) {
    int64_t d = s->d, padded = rounded(d, BLOCK), group = s->heads / s->kv;
    int64_t past = s->past[i], length = s->length[i], start = s->start[i];
    float scale = 1.0f / sqrtf((float)d);
    for (int64_t row = 0; row < length * group; row += MANY) {
        int num = length * group - row < MANY ? (int)(length * group - row) : MANY;
        int64_t reach = rounded(past + (row + num - 1) / group + 1, BLOCK);
        const float *rows[MANY], *grads[MANY];
        memset(m->mixed, 0, MANY * padded * sizeof(float));
        for (int r = 0; r < num; r++) {
            int64_t place = ((start + (row + r) / group) * s->heads + h * group + (row + r) % group) * d;
            rows[r] = query + place, grads[r] = dout + place;
            memcpy(m->rows + r * padded, rows[r], d * sizeof(float));
            memcpy(m->grads + r * padded, grads[r], d * sizeof(float));
        }
        for (int r = 0; r < num; r += FEW) {
            int few = num - r < FEW ? num - r : FEW;
            products_of(rows + r, few, m->blocks, reach / BLOCK, d, m->weights + r * room, room);
            products_of(grads + r, few, m->value_blocks, reach / BLOCK, d, m->dscores + r * room, room);
        }
        for (int r = 0; r < num; r++) {
            int64_t token = (row + r) / group, place = rows[r] - query;
            float *weight = m->weights + r * room, *ds = m->dscores + r * room, inner = 0;
            float all = sums[place / d];
            for (int64_t k = 0; k < d; k++) inner += dout[place + k] * out[place + k];
            for (int64_t k = past + token + 1; k < reach; k++) weight[k] = -INFINITY;
            for (int64_t k = 0; k < reach; k += LANES) {
                vec p = exponential(load(weight + k) * scale - all);
                store(weight + k, p);
                store(ds + k, p * (load(ds + k) - inner) * scale);
            }
        }
        for (int r = 0; r < num; r += FEW)
            mix_into(m->dscores + r * room, room, 1, num - r < FEW ? num - r : FEW, m->keys, reach, padded,
                     m->mixed + r * padded);
        for (int r = 0; r < num; r++)
            memcpy(dquery + (rows[r] - query), m->mixed + r * padded, d * sizeof(float));
        spread_back(m->dscores, room, num, reach, m->rows, padded, m->dkey);
        spread_back(m->weights, room, num, reach, m->grads, padded, m->dvalue);
    }
}

static int backward_unit(
    const Shape *s, const float *query, const float *key, const float *value, int64_t value_step, const float *out,
    const float *sums, const float *dout, float *dquery, float *dkey, float *dvalue, int64_t first, int64_t last,
    int64_t h) {
    int64_t d = s->d, padded = rounded(d, BLOCK), room = longest_of(s, first, last);
    int64_t *open = malloc((last - first) * sizeof(int64_t)), depth = 0;
    float *all = floats(room * (2 * d + 3 * padded) + MANY * (2 * room + 3 * padded));
    if (!all || !open) return free(all), free(open), 1;
    Gradients m;
    m.blocks = all, m.value_blocks = m.blocks + room * d, m.keys = m.value_blocks + room * d;
    m.dkey = m.keys + room * padded, m.dvalue = m.dkey + room * padded, m.weights = m.dvalue + room * padded;
    m.dscores = m.weights + MANY * room, m.grads = m.dscores + MANY * room;
    m.mixed = m.grads + MANY * padded, m.rows = m.mixed + MANY * padded;
    const float *keys = key + h * d, *vals = value + h * d;
    int64_t step = s->kv * d;
    for (int64_t i = first; i <= last; i++) {
        int64_t past = i < last ? s->past[i] : 0;
        while (depth && s->past[open[depth - 1]] + s->length[open[depth - 1]] > past) {
            int64_t done = open[--depth], place = s->past[done] * padded;
            leave(m.dkey + place, padded, s->start[done], s->length[done], step, d, dkey + h * d);
            leave(m.dvalue + place, padded, s->start[done], s->length[done], step, d, dvalue + h * d);
        }
        if (i == last) break;
        open[depth++] = i;
        to_blocks(keys, step, s->start[i], s->length[i], d, m.blocks, past);
        to_blocks(vals, value_step, s->start[i], s->length[i], d, m.value_blocks, past);
        to_padded(keys, step, s->start[i], s->length[i], d, padded, m.keys + past * padded);
        backward_stream(s, &m, query, out, dout, sums, dquery, i, h, room);
    }
    free(all), free(open);
    return 0;
}

/* Gradients of qt_packed_attention. */
int qt_packed_attention_backward(
    const float *query, const float *key, const float *value, int64_t value_step, const int64_t *start,
    const int64_t *length, const int64_t *past, const int64_t *families, int64_t num_families, int64_t heads, int64_t kv, int64_t d, const float *out, const float *sums,
    const float *dout, float *dquery, float *dkey, float *dvalue) {
    Shape s = {start, length, past, families, heads, kv, d};
    int failed = 0;
#pragma omp parallel for schedule(dynamic) reduction(| : failed)
    for (int64_t unit = 0; unit < num_families * kv; unit++) {
        int64_t family = unit / kv;
        failed |= backward_unit(&s, query, key, value, value_step, out, sums, dout, dquery, dkey, dvalue,
                                families[family], families[family + 1], unit % kv);
    }
    return failed;
}
