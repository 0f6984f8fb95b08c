/* Attention of new tokens to a cache of keys and values, one slot per stream, for sampling.

   A layer's keys are [slots, kv, capacity / 16, d, 16], its values [slots, kv, capacity, padded]. Streams that
   share a prompt read it from one slot, so that it stays in the processor's cache. */
#include "tiles.h"

/* Writes key[n, kv, d] and the value part of joined[n, width] into the cache at (slots[n], positions[n]). */
void qt_cache(
    const float *key, const float *value, int64_t value_step, const int64_t *slots, const int64_t *positions,
    float *keys, float *values, int64_t n, int64_t kv, int64_t d, int64_t capacity) {
    int64_t padded = rounded(d, BLOCK);
#pragma omp parallel for schedule(static) if (n > 16)
    for (int64_t row = 0; row < n; row++) {
        int64_t at = positions[row];
        for (int64_t h = 0; h < kv; h++) {
            float *block = keys + ((slots[row] * kv + h) * capacity + at / BLOCK * BLOCK) * d + at % BLOCK;
            const float *from = key + (row * kv + h) * d;
            for (int64_t i = 0; i < d; i++) block[i * BLOCK] = from[i];
            memcpy(values + ((slots[row] * kv + h) * capacity + at) * padded, value + row * value_step + h * d,
                   d * sizeof(float));
        }
    }
}

/* out[tokens, heads, d] for rows r = 0 .. num_rows: tokens first[r] .. first[r] + count[r] of query, which stand
   at positions past[r] + j of slot[r]; the first shared[r] positions (a multiple of 16) are read from slot
   leader[r]. */
int qt_cached_attention(
    const float *query, const float *keys, const float *values, const int64_t *first, const int64_t *count,
    const int64_t *past, const int64_t *slot, const int64_t *leader, const int64_t *shared, int64_t num_rows,
    int64_t heads, int64_t kv, int64_t d, int64_t capacity, float *out) {
    int64_t padded = rounded(d, BLOCK), group = heads / kv, longest = 0;
    float scale = 1.0f / sqrtf((float)d);
    for (int64_t r = 0; r < num_rows; r++)
        if (past[r] + count[r] > longest) longest = past[r] + count[r];
    int64_t room = rounded(longest, BLOCK);
    int failed = 0;
#pragma omp parallel reduction(| : failed)
    {
        float *scores = floats(FEW * (room + padded)), *mixed = scores + FEW * room;
        failed |= !scores;
#pragma omp for schedule(dynamic, 4)
        for (int64_t unit = 0; unit < num_rows * kv; unit++) {
            int64_t h = unit / num_rows, r = unit % num_rows;
            if (!scores) continue;
            const float *mine = keys + (slot[r] * kv + h) * capacity * d;
            const float *theirs = keys + (leader[r] * kv + h) * capacity * d;
            const float *my_values = values + (slot[r] * kv + h) * capacity * padded;
            const float *their_values = values + (leader[r] * kv + h) * capacity * padded;
            int64_t common = shared[r];
            for (int64_t row = 0; row < count[r] * group; row += FEW) {
                int num = count[r] * group - row < FEW ? (int)(count[r] * group - row) : FEW;
                const float *rows[FEW];
                for (int j = 0; j < num; j++)
                    rows[j] = query + ((first[r] + (row + j) / group) * heads + h * group + (row + j) % group) * d;
                int64_t reach = rounded(past[r] + (row + num - 1) / group + 1, BLOCK);
                int64_t near = common < reach ? common : reach;
                products_of(rows, num, theirs, near / BLOCK, d, scores, room);
                products_of(rows, num, mine + near * d, (reach - near) / BLOCK, d, scores + near, room);
                memset(mixed, 0, FEW * padded * sizeof(float));
                for (int j = 0; j < num; j++)
                    softened(scores + j * room, past[r] + (row + j) / group + 1, reach, scale);
                int64_t last = past[r] + (row + num - 1) / group + 1;
                int64_t from_leader = near < last ? near : last;
                mix_into(scores, room, 1, num, their_values, from_leader, padded, mixed);
                mix_into(scores + near, room, 1, num, my_values + near * padded, last - from_leader, padded, mixed);
                for (int j = 0; j < num; j++)
                    memcpy(out + (rows[j] - query), mixed + j * padded, d * sizeof(float));
            }
        }
        free(scores);
    }
    return failed;
}
