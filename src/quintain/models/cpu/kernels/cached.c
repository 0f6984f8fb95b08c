/* The layers of a model over a cache of keys and values, one slot per stream, for sampling.

   A layer's keys are [slots, kv, capacity / 16, d, 16], its values [slots, kv, capacity, padded]. In numbers of 16 bits
   two neighbours lie side by side, along d of the keys and along the tokens of the values:
   [slots, kv, capacity / 16, d / 2, 16, 2] and [slots, kv, capacity / 2, padded, 2]. Streams that share a prompt read it
   from one slot, so that it stays in the processor's cache. */
#include "half.h"
#include "kernels.h"

/* Where a token of n stands, and the new tokens of a row r: first[r] .. first[r] + count[r], at positions past[r] + j of
   slot[r]; the first shared[r] positions (a multiple of 16) are read from slot leader[r]. */
typedef struct {
    const int64_t *slots, *positions;
    int64_t n;
    const int64_t *first, *count, *past, *slot, *leader, *shared;
    int64_t num_rows;
} Places;

typedef struct {
    int64_t heads, kv, d, capacity;
} Shape;

/* Writes key[n, kv, d] and the value part of joined[n, width] into the cache at (slots[n], positions[n]). */
static void kept(
    const float *key, const float *value, int64_t value_step, const Places *at, const Shape *s, int is_half, void *keys,
    void *values) {
    int64_t d = s->d, padded = rounded(d, BLOCK);
#pragma omp parallel for schedule(static) if (at->n > 16)
    for (int64_t row = 0; row < at->n; row++) {
        int64_t position = at->positions[row];
        int is_last = row + 1 == at->n || at->slots[row + 1] != at->slots[row];
        for (int64_t h = 0; h < s->kv; h++) {
            int64_t place = (at->slots[row] * s->kv + h) * s->capacity;
            const float *from = key + (row * s->kv + h) * d, *from_value = value + row * value_step + h * d;
            if (is_half) {
                half_kept(from, from_value, d, position, is_last, (pair *)keys + place * d / 2,
                          (pair *)values + place * padded / 2);
            } else {
                float *block = (float *)keys + (place + position / BLOCK * BLOCK) * d + position % BLOCK;
                for (int64_t i = 0; i < d; i++) block[i * BLOCK] = from[i];
                memcpy((float *)values + (place + position) * padded, from_value, d * sizeof(float));
            }
        }
    }
}

/* What `half_attended` does, in 32 bits. */
static void attended(
    const float *const *rows, int num, const int64_t *allowed, int64_t reach, int64_t near, int64_t d,
    const float *keys, const float *their_keys, const float *values, const float *their_values, const Scratch *m) {
    int64_t padded = rounded(d, BLOCK), room = m->room, last = allowed[num - 1];
    int64_t from_leader = near < last ? near : last;
    products_of(rows, num, their_keys, near / BLOCK, d, m->scores, room);
    products_of(rows, num, keys + near * d, (reach - near) / BLOCK, d, m->scores + near, room);
    for (int j = 0; j < num; j++) softened(m->scores + j * room, allowed[j], reach, 1.0f / sqrtf((float)d));
    mix_into(m->scores, room, 1, num, their_values, from_leader, padded, m->mixed);
    mix_into(m->scores + near, room, 1, num, values + near * padded, last - from_leader, padded, m->mixed);
}

/* out[tokens, heads, d] for query[tokens, heads, d]. */
static int attention(
    const float *query, const void *keys, const void *values, const Places *at, const Shape *s, int is_half, float *out) {
    int64_t d = s->d, padded = rounded(d, BLOCK), group = s->heads / s->kv, longest = 0;
    for (int64_t r = 0; r < at->num_rows; r++)
        if (at->past[r] + at->count[r] > longest) longest = at->past[r] + at->count[r];
    int64_t room = rounded(longest, BLOCK);
    int failed = 0;
#pragma omp parallel reduction(| : failed)
    {
        float *scores = floats(FEW * (room + padded) + (is_half ? FEW * (room + d) / 2 : 0)), *mixed = scores + FEW * room;
        Scratch m = {scores, mixed, (pair *)(mixed + FEW * padded), room};
        failed |= !scores;
#pragma omp for schedule(dynamic, 4)
        for (int64_t unit = 0; unit < at->num_rows * s->kv; unit++) {
            int64_t h = unit / at->num_rows, r = unit % at->num_rows, first = at->first[r], past = at->past[r];
            if (!scores) continue;
            int64_t mine = (at->slot[r] * s->kv + h) * s->capacity, theirs = (at->leader[r] * s->kv + h) * s->capacity;
            for (int64_t row = 0; row < at->count[r] * group; row += FEW) {
                int num = at->count[r] * group - row < FEW ? (int)(at->count[r] * group - row) : FEW;
                const float *rows[FEW];
                int64_t allowed[FEW];
                for (int j = 0; j < num; j++) {
                    rows[j] = query + ((first + (row + j) / group) * s->heads + h * group + (row + j) % group) * d;
                    allowed[j] = past + (row + j) / group + 1;
                }
                int64_t reach = rounded(allowed[num - 1], BLOCK), near = at->shared[r] < reach ? at->shared[r] : reach;
                memset(mixed, 0, FEW * padded * sizeof(float));
                if (is_half)
                    half_attended(rows, num, allowed, reach, near, d, (const pair *)keys + mine * d / 2,
                                  (const pair *)keys + theirs * d / 2, (const pair *)values + mine * padded / 2,
                                  (const pair *)values + theirs * padded / 2, row == 0, &m, 0);
                else
                    attended(rows, num, allowed, reach, near, d, (const float *)keys + mine * d,
                             (const float *)keys + theirs * d, (const float *)values + mine * padded,
                             (const float *)values + theirs * padded, &m);
                for (int j = 0; j < num; j++)
                    memcpy(out + (rows[j] - query), mixed + j * padded, d * sizeof(float));
            }
        }
        free(scores);
    }
    return failed;
}

/* Addresses of what a layer reads: weights and biases (NULL where there are none) of query, key and value side by side, of
   the output, of gate and up, and of down; weights of the norms before them and of the heads' (NULL where there are none);
   keys and values. `is_joined`: gate and up lie side by side, with a bias, and not by turns. */
typedef struct {
    const void *joined, *output, *gated, *down;
    const float *joined_bias, *output_bias, *gated_bias, *down_bias, *first_norm, *second_norm, *query_norm, *key_norm;
    void *keys, *values;
    int64_t is_joined;
} Layer;

/* hidden[n, width] after all layers, in place. Where `last` [num_last] is not NULL, only these tokens go through the end of
   the last layer, and stand first in `hidden` then. epsilons[layers, 3]: of the two norms and of the heads'. */
int qt_layers(
    float *hidden, const Layer *layers, const float *epsilons, int64_t num_layers, int64_t width, int64_t inner,
    const float *cosine, const float *sine, const int64_t *slots, const int64_t *positions, int64_t n,
    const int64_t *first, const int64_t *count, const int64_t *past, const int64_t *slot, const int64_t *leader,
    const int64_t *shared, int64_t num_rows, const int64_t *last, int64_t num_last, int64_t heads, int64_t kv, int64_t d,
    int64_t capacity, int64_t is_half) {
    Places at = {slots, positions, n, first, count, past, slot, leader, shared, num_rows};
    Shape s = {heads, kv, d, capacity};
    int64_t all = (heads + 2 * kv) * d, size = heads * d;
    int (*product)(const float *, const void *, const float *, const float *, float *, int64_t, int64_t, int64_t, int64_t) =
        is_half ? qt_product_half : qt_product;
    float *between = malloc(n * (2 * width + all + 2 * size + kv * d + heads + kv + (layers->is_joined ? 3 : 1) * inner) * sizeof(float));
    if (!between) return 1;
    float *normed = between, *other = normed + n * width, *joined = other + n * width, *query = joined + n * all;
    float *mixed = query + n * size, *key = mixed + n * size, *scales = key + n * kv * d;
    float *active = scales + n * (heads + kv), *both = active + n * inner;
    int failed = 0;
    for (int64_t l = 0; l < num_layers && !failed; l++, epsilons += 3) {
        const Layer *layer = layers + l;
        qt_rms_norm(hidden, layer->first_norm, normed, 0, n, width, epsilons[0]);
        failed |= product(normed, layer->joined, layer->joined_bias, 0, joined, n, width, all, 0);
        qt_heads(joined, layer->query_norm, layer->key_norm, cosine, sine, positions, epsilons[2], query, key, scales, n,
                 heads, kv, d);
        kept(key, joined + (heads + kv) * d, all, &at, &s, is_half, layer->keys, layer->values);
        failed |= attention(query, layer->keys, layer->values, &at, &s, is_half, mixed);
        if (l == num_layers - 1 && last) {
            n = num_last;
            for (int64_t row = 0; row < n; row++) {
                memmove(mixed + row * size, mixed + last[row] * size, size * sizeof(float));
                memmove(hidden + row * width, hidden + last[row] * width, width * sizeof(float));
            }
        }
        failed |= product(mixed, layer->output, layer->output_bias, hidden, other, n, size, width, 0);
        qt_rms_norm(other, layer->second_norm, normed, 0, n, width, epsilons[1]);
        failed |= product(normed, layer->gated, layer->gated_bias, 0, layer->is_joined ? both : active, n, width,
                          layer->is_joined ? 2 * inner : inner, !layer->is_joined);
        if (layer->is_joined) qt_gated(both, active, n, inner);
        failed |= product(active, layer->down, layer->down_bias, other, hidden, n, inner, width, 0);
    }
    free(between);
    return failed;
}
