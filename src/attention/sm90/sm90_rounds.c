/* How long causal tiles take that are a few rounds of a card's multiprocessors: each multiprocessor takes the next
 * tile, the longest ones first, when it has done with one. A few tiles beyond a round may cost a second round, or fit
 * beside shorter ones, which no sum of all tiles tells. In key blocks; pure; any thread.
 *
 * Of the pairs of configs that were timed on an H100 it finds the faster one each time, us: hd64, 605 queries over
 * 2,420 keys of 30 heads, 150 tiles of 128 rows 44.8 and 120 of 192 35.3; 500 over 2,000 of 36 38.3 and 30.7; 1,513
 * over 3,027 of 24, 288 tiles 63.6 and 192 57.8; hd40, 594 over 1,189 of 18, 180 tiles of 64 rows 22.5 and 90 of 128
 * 17.0; hd64, 395 queries and keys of 32, 224 of 64 rows 11.6 and 128 of 128 11.9. */
#include "attention/sm90/sm90_tiles.h"

#include "attention/sm90/sm90_config.h"
#include "attention_sm90/layout.h"
#include "base/integer.h"

enum {
  MOST_MULTIPROCESSORS = 256, /* of a card whose rounds are counted */
  MOST_ROUNDS = 9             /* of 64 rows each; of more the sum of all tiles says as much, whatever the tiles */
};

int64_t sm90_tiles_blocks(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config, int64_t number) {
  const int64_t tile = (int64_t)SM90_GROUP_ROWS * sm90_tile_consumers(config) / config->packed;
  const int64_t seen = integer_max(integer_min(number * tile + tiles->keys_before, tiles->seq_kv), 1);
  return integer_min(integer_divide_up(seen, config->tile_n), tiles->key_blocks);
}

/* Restore the heap, whose least element is the first, after that one has grown. */
static void sink(int64_t *heap, int64_t count) {
  const int64_t grown = heap[0];
  int64_t at = 0;
  for (int64_t child = 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= grown) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = grown;
}

int64_t sm90_tiles_longest(const struct sm90_tiles *tiles, const kjit_attention_sm90_config *config,
                           int64_t multiprocessors) {
  const int64_t heads = tiles->count / tiles->query_tiles;
  int64_t done[MOST_MULTIPROCESSORS], longest = 0;
  if (multiprocessors < 1 || multiprocessors > MOST_MULTIPROCESSORS || tiles->count <= multiprocessors)
    return tiles->key_blocks;
  if (tiles->count * sm90_tile_consumers(config) > MOST_ROUNDS * multiprocessors) return tiles->key_blocks;
  for (int64_t i = 0; i < multiprocessors; i++)
    done[multiprocessors - 1 - i] = sm90_tiles_blocks(tiles, config, tiles->query_tiles - i / heads);
  for (int64_t i = multiprocessors; i < tiles->count; i++) {
    done[0] += sm90_tiles_blocks(tiles, config, tiles->query_tiles - i / heads);
    sink(done, multiprocessors);
  }
  for (int64_t i = 0; i < multiprocessors; i++)
    longest = integer_max(longest, done[i]);
  return longest;
}
