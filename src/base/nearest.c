/* The nearest name to a misspelt one: the distance is the number of letters to insert, delete, replace or swap with
 * their neighbour (the restricted Damerau-Levenshtein distance), without regard to case. A name counts as near when at
 * most a third of the letters differ, because beyond that a suggestion misleads more often than it helps.
 *
 * Threads: nothing is shared. */
#include "base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Names longer than this are not compared: fields and keys are shorter. */
#define LENGTH_MAX 64

void nearest_begin(struct nearest *nearest, const char *wanted, size_t wanted_bytes) {
  *nearest = (struct nearest){wanted, wanted_bytes, NULL, SIZE_MAX};
}

static size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}

static int folded(char letter) {
  return tolower((unsigned char)letter);
}

/* Row by row; the row before the last is kept because a swap of two letters reaches back to it. */
static size_t distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
  size_t rows[3][LENGTH_MAX + 1];
  for (size_t j = 0; j <= b_bytes; j++)
    rows[0][j] = j;
  for (size_t i = 1; i <= a_bytes; i++) {
    size_t *const row = rows[i % 3];
    const size_t *const above = rows[(i + 2) % 3], *const before = rows[(i + 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= b_bytes; j++) {
      const bool same = folded(a[i - 1]) == folded(b[j - 1]);
      row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + !same);
      if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) && folded(a[i - 2]) == folded(b[j - 1]))
        row[j] = least(row[j], before[j - 2] + 1);
    }
  }
  return rows[a_bytes % 3][b_bytes];
}

void nearest_offer(struct nearest *nearest, const char *name) {
  const size_t bytes = strlen(name);
  if (nearest->wanted_bytes > LENGTH_MAX || bytes > LENGTH_MAX) return;
  const size_t found = distance(nearest->wanted, nearest->wanted_bytes, name, bytes);
  const size_t longer = bytes > nearest->wanted_bytes ? bytes : nearest->wanted_bytes;
  if (3 * found > longer + 1 || found == longer || found >= nearest->best_distance) return;
  nearest->best = name;
  nearest->best_distance = found;
}

void nearest_offer_all(struct nearest *nearest, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    nearest_offer(nearest, names[i]);
}
