/* Runs a fuzzer without libFuzzer: every file of its corpus, then mutations of them, the same in every run.
 * usage: <name>_fuzzer CORPUS_FOLDER [MUTATIONS] */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/require.h"

/* Largest corpus file and largest mutation: beyond every parser's own cap on what it looks at in one go. */
#define INPUT_MAX (1u << 20)
/* Mutations of each file where none are asked for: a second or so. */
#define MUTATIONS 20000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t random_state = 0x9e3779b97f4a7c15u;

/* xorshift64*: the same numbers everywhere. */
static uint64_t random_next(void) {
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * 0x2545f4914f6cdd1du;
}

static size_t random_below(size_t bound) {
  return bound > 0 ? (size_t)(random_next() % bound) : 0;
}

/* One small change; returns the new size. */
static size_t mutate(uint8_t *data, size_t size) {
  const size_t at = random_below(size), other = random_below(size);
  switch (random_below(5)) {
  case 0: /* flip a bit */
    if (size > 0) data[at] ^= (uint8_t)(1u << random_below(8));
    return size;
  case 1: /* another byte */
    if (size > 0) data[at] = (uint8_t)random_next();
    return size;
  case 2: /* cut */
    return at;
  case 3: /* one byte more */
    if (size == INPUT_MAX) return size;
    memmove(data + at + 1, data + at, size - at);
    data[at] = (uint8_t)random_next();
    return size + 1;
  default: /* copy a stretch over another */
    if (size > 0) memmove(data + at, data + other, random_below(size - (at > other ? at : other)));
    return size;
  }
}

/* A buffer of exactly the input's size, so that a sanitizer sees a read past its end. */
static void run_input(const uint8_t *data, size_t size) {
  uint8_t *exact = malloc(size > 0 ? size : 1);
  if (exact == NULL) abort();
  memcpy(exact, data, size);
  (void)LLVMFuzzerTestOneInput(exact, size);
  free(exact);
}

static void run_mutations(const uint8_t *original, size_t original_size, size_t mutations) {
  static uint8_t data[INPUT_MAX];
  for (size_t i = 0; i < mutations; i++) {
    size_t size = original_size;
    memcpy(data, original, size);
    for (size_t changes = 1 + random_below(4); changes > 0; changes--)
      size = mutate(data, size);
    run_input(data, size);
  }
}

static size_t taken; /* of the corpus, before any mutation */

static int run_file(const char *path, size_t mutations) {
  static uint8_t data[INPUT_MAX];
  FILE *stream = fopen(path, "rb");
  if (stream == NULL) return -1;
  const size_t size = fread(data, 1, sizeof data, stream);
  fclose(stream);
  fuzz_taken = 0;
  run_input(data, size);
  taken += fuzz_taken > 0;
  run_mutations(data, size, mutations);
  return 0;
}

static int is_input(const struct dirent *entry) {
  return entry->d_name[0] != '.';
}

int main(int argc, char **argv) {
  char path[4096];
  int read = 0;
  struct dirent **entries = NULL;
  const size_t mutations = argc > 2 ? (size_t)strtoull(argv[2], NULL, 10) : MUTATIONS;
  const int count = argc > 1 ? scandir(argv[1], &entries, is_input, alphasort) : -1; /* in order: every run the same */
  if (count < 0) {
    fprintf(stderr, "usage: %s CORPUS_FOLDER [MUTATIONS]\n", argv[0]);
    return 2;
  }
  for (int i = 0; i < count; i++) {
    snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
    if (run_file(path, mutations) == 0)
      read++;
    else
      perror(path);
    free(entries[i]);
  }
  free(entries);
  printf("%d files, of which %zu are taken; %zu mutations of each\n", read, taken, mutations);
  if (!taken) fprintf(stderr, "%s: every file is refused: has the format changed since they were made?\n", argv[1]);
  return read == count && taken > 0 ? 0 : 1;
}
