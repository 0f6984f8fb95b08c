/* Attention over streams that are packed end to end, forward and backward, for training.

   A stream may continue a prefix that it shares with others; streams of one prefix are a family. A family and
   one key/value head are one unit of work, done by one thread, so the sums do not depend on the threads. */
#include "tiles.h"

#define MANY 24 /* rows of a tile of the backward pass */

typedef struct {
    const int64_t *start, *length, *prefix_start, *prefix_length; /* of each stream */
    const int64_t *families; /* [num_families + 1], first stream of each; the prefix's own stream comes first */
    int64_t heads, kv, d;
} Shape;

/* keys[from .. from + count) of head h: transposed blocks */
static void to_blocks(const float *rows, int64_t step, int64_t from, int64_t count, int64_t d, float *blocks) {
    for (int64_t k = 0; k < count; k++) {
        const float *row = rows + (from + k) * step;
        float *to = blocks + k / BLOCK * BLOCK * d + k % BLOCK;
        for (int64_t i = 0; i < d; i++) to[i * BLOCK] = row[i];
    }
}

static void to_padded(
    const float *rows, int64_t step, int64_t from, int64_t count, int64_t d, int64_t padded, float *out) {
    for (int64_t k = 0; k < count; k++) memcpy(out + k * padded, rows + (from + k) * step, d * sizeof(float));
}

static int64_t longest_of(const Shape *s, int64_t first, int64_t last) {
    int64_t most = 0;
    for (int64_t i = first; i < last; i++) {
        int64_t all = rounded(s->prefix_length[i], BLOCK) + rounded(s->length[i], BLOCK);
        if (all > most) most = all;
    }
    return most;
}

static int forward_unit(
    const Shape *s, const float *query, const float *key, const float *value, int64_t value_step, float *out,
    float *sums, int64_t first, int64_t last, int64_t h) {
    int64_t d = s->d, padded = rounded(d, BLOCK), group = s->heads / s->kv, room = longest_of(s, first, last);
    float *blocks = floats(room * d), *values = floats(room * padded), *scores = floats(FEW * room);
    float *mixed = floats(FEW * padded);
    int failed = !(blocks && values && scores && mixed);
    float scale = 1.0f / sqrtf((float)d);
    const float *keys = key + h * d, *vals = value + h * d;
    int64_t has_prefix = -1;
    for (int64_t i = first; i < last && !failed; i++) {
        int64_t prefix = s->prefix_length[i], length = s->length[i], start = s->start[i];
        int64_t own = rounded(prefix, BLOCK), end = own + rounded(length, BLOCK);
        if (prefix && has_prefix != prefix) {
            to_blocks(keys, s->kv * d, s->prefix_start[i], prefix, d, blocks);
            to_padded(vals, value_step, s->prefix_start[i], prefix, d, padded, values);
            memset(values + prefix * padded, 0, (own - prefix) * padded * sizeof(float));
            has_prefix = prefix;
        }
        if (!prefix) has_prefix = -1;
        to_blocks(keys, s->kv * d, start, length, d, blocks + own * d);
        to_padded(vals, value_step, start, length, d, padded, values + own * padded);
        for (int64_t row = 0; row < length * group; row += FEW) {
            int num = length * group - row < FEW ? (int)(length * group - row) : FEW;
            const float *rows[FEW];
            for (int r = 0; r < num; r++)
                rows[r] = query + ((start + (row + r) / group) * s->heads + h * group + (row + r) % group) * d;
            int64_t reach = own + rounded((row + num - 1) / group + 1, BLOCK);
            products_of(rows, num, blocks, reach / BLOCK, d, scores, room);
            memset(mixed, 0, FEW * padded * sizeof(float));
            for (int r = 0; r < num; r++) {
                int64_t token = (row + r) / group;
                float *line = scores + r * room;
                for (int64_t k = prefix; k < own; k++) line[k] = -INFINITY;
                sums[(start + token) * s->heads + h * group + (row + r) % group] =
                    softened(line, own + token + 1, reach, scale);
            }
            mix_into(scores, room, 1, num, values, reach < end ? reach : end, padded, mixed);
            for (int r = 0; r < num; r++)
                memcpy(out + (rows[r] - query), mixed + r * padded, d * sizeof(float));
        }
    }
    free(blocks), free(values), free(scores), free(mixed);
    return failed;
}

/* out[n, heads, d] and sums[n, heads] (log-sum-exp); key[n, kv, d]; value has rows of value_step floats. */
int qt_packed_attention(
    const float *query, const float *key, const float *value, int64_t value_step, const int64_t *start,
    const int64_t *length, const int64_t *prefix_start, const int64_t *prefix_length, const int64_t *families,
    int64_t num_families, int64_t heads, int64_t kv, int64_t d, float *out, float *sums) {
    Shape s = {start, length, prefix_start, prefix_length, families, heads, kv, d};
    int failed = 0;
#pragma omp parallel for schedule(dynamic) reduction(| : failed)
    for (int64_t unit = 0; unit < num_families * kv; unit++) {
        int64_t family = unit / kv;
        failed |= forward_unit(&s, query, key, value, value_step, out, sums, families[family], families[family + 1],
                               unit % kv);
    }
    return failed;
}

typedef struct {
    float *blocks, *value_blocks, *keys, *dkey, *dvalue, *weights, *dscores, *grads, *mixed, *rows;
} Scratch;

/* to[key][padded] += sum over rows of weights[row][key] * rows[row][padded] */
INLINE void spread_back(
    const float *weights, int64_t stride, int64_t num_rows, int64_t num_keys, const float *rows, int64_t padded,
    float *to) {
    for (int64_t k = 0; k < num_keys; k += FEW) {
        int num = num_keys - k < FEW ? (int)(num_keys - k) : FEW;
        mix_into(weights + k, 1, stride, num, rows, num_rows, padded, to + k * padded);
    }
}

static void add_rows(
    const float *from, int64_t padded, int64_t start, int64_t count, int64_t step, int64_t d, float *to) {
    for (int64_t k = 0; k < count; k++)
        for (int64_t i = 0; i < d; i++) to[(start + k) * step + i] += from[k * padded + i];
}

static void backward_stream(
    const Shape *s, const Scratch *m, const float *query, const float *out, const float *dout, const float *sums,
    float *dquery, int64_t i, int64_t h, int64_t room) {
    int64_t d = s->d, padded = rounded(d, BLOCK), group = s->heads / s->kv;
    int64_t prefix = s->prefix_length[i], length = s->length[i], start = s->start[i], own = rounded(prefix, BLOCK);
    float scale = 1.0f / sqrtf((float)d);
    for (int64_t row = 0; row < length * group; row += MANY) {
        int num = length * group - row < MANY ? (int)(length * group - row) : MANY;
        int64_t reach = own + rounded((row + num - 1) / group + 1, BLOCK);
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
            for (int64_t k = prefix; k < own; k++) weight[k] = -INFINITY;
            for (int64_t k = own + token + 1; k < reach; k++) weight[k] = -INFINITY;
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
    float *all = floats(room * (2 * d + 3 * padded) + MANY * (2 * room + 3 * padded));
    if (!all) return 1;
    Scratch m;
    m.blocks = all, m.value_blocks = m.blocks + room * d, m.keys = m.value_blocks + room * d;
    m.dkey = m.keys + room * padded, m.dvalue = m.dkey + room * padded, m.weights = m.dvalue + room * padded;
    m.dscores = m.weights + MANY * room, m.grads = m.dscores + MANY * room;
    m.mixed = m.grads + MANY * padded, m.rows = m.mixed + MANY * padded;
    const float *keys = key + h * d, *vals = value + h * d;
    int64_t step = s->kv * d;
    for (int64_t i = first; i < last; i++) {
        int64_t prefix = s->prefix_length[i], length = s->length[i], start = s->start[i], own = rounded(prefix, BLOCK);
        int64_t end = own + rounded(length, BLOCK);
        memset(m.keys, 0, end * padded * sizeof(float));
        memset(m.dkey, 0, end * padded * sizeof(float)), memset(m.dvalue, 0, end * padded * sizeof(float));
        if (prefix) {
            to_blocks(keys, step, s->prefix_start[i], prefix, d, m.blocks);
            to_blocks(vals, value_step, s->prefix_start[i], prefix, d, m.value_blocks);
            to_padded(keys, step, s->prefix_start[i], prefix, d, padded, m.keys);
        }
        to_blocks(keys, step, start, length, d, m.blocks + own * d);
        to_blocks(vals, value_step, start, length, d, m.value_blocks + own * d);
        to_padded(keys, step, start, length, d, padded, m.keys + own * padded);
        backward_stream(s, &m, query, out, dout, sums, dquery, i, h, room);
        if (prefix) {
            add_rows(m.dkey, padded, s->prefix_start[i], prefix, step, d, dkey + h * d);
            add_rows(m.dvalue, padded, s->prefix_start[i], prefix, step, d, dvalue + h * d);
        }
        add_rows(m.dkey + own * padded, padded, start, length, step, d, dkey + h * d);
        add_rows(m.dvalue + own * padded, padded, start, length, step, d, dvalue + h * d);
    }
    free(all);
    return 0;
}

/* Gradients of qt_packed_attention; dkey and dvalue [n, kv, d] must be zero at the start. */
int qt_packed_attention_backward(
    const float *query, const float *key, const float *value, int64_t value_step, const int64_t *start,
    const int64_t *length, const int64_t *prefix_start, const int64_t *prefix_length, const int64_t *families,
    int64_t num_families, int64_t heads, int64_t kv, int64_t d, const float *out, const float *sums,
    const float *dout, float *dquery, float *dkey, float *dvalue) {
    Shape s = {start, length, prefix_start, prefix_length, families, heads, kv, d};
    int failed = 0;
#pragma omp parallel for schedule(dynamic) reduction(| : failed)
    for (int64_t unit = 0; unit < num_families * kv; unit++) {
        int64_t family = unit / kv;
        failed |= backward_unit(&s, query, key, value, value_step, out, sums, dout, dquery, dkey, dvalue,
                                families[family], families[family + 1], unit % kv);
    }
    return failed;
}
