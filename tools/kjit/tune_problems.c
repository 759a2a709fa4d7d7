/* The problems that `kjit tune` measures: from --set, --problem and --manifest, reduced to one for each class, because
 * a class has one row in the tuned table. The first problem of a class is the one that is measured. One thread. */
#include "tune_problems.h"

#include "command.h"
#include "manifest.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most classes at once: as many as a tuned table has rows for. */
#define MOST_PROBLEMS 16384

static const char blanks[] = " \t";

void tune_problems_free(struct tune_problems *problems) {
  for (size_t i = 0; i < problems->count; i++) {
    free((void *)(uintptr_t)problems->items[i].asked.family);
    free(problems->items[i].class_text);
  }
  free(problems->items);
  family_files_close(&problems->files);
  *problems = (struct tune_problems){0};
}

static bool has_class(const struct tune_problems *problems, const char *class_text) {
  for (size_t i = 0; i < problems->count; i++)
    if (strcmp(problems->items[i].class_text, class_text) == 0) return true;
  return false;
}

static kjit_status grow(struct tune_problems *problems, kjit_error *error) {
  if (problems->count < problems->capacity) return KJIT_OK;
  if (problems->count >= MOST_PROBLEMS)
    return error_say(error, KJIT_ERR_UNSUPPORTED, "more than %d classes of problems at once", MOST_PROBLEMS);
  const size_t capacity = problems->capacity == 0 ? 64 : 2 * problems->capacity;
  struct tune_problem *items = realloc(problems->items, capacity * sizeof *items);
  if (items == NULL) return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %zu problems", capacity);
  problems->items = items;
  problems->capacity = capacity;
  return KJIT_OK;
}

/* Keep the problem, if it is the first of its class; a family's problem is copied. */
static kjit_status keep(struct tune_problems *problems, const kjit_tune_problem *asked, kjit_error *error) {
  char class_text[KJIT_FAMILY_PROBLEM_TEXT_MAX];
  kjit_family_problem *copy = NULL;
  kjit_status status = kjit_tune_class(asked, class_text, sizeof class_text, error);
  if (status != KJIT_OK) return status;
  problems->asked++;
  if (has_class(problems, class_text)) return KJIT_OK;
  status = grow(problems, error);
  if (status != KJIT_OK) return status;
  struct tune_problem problem = {.asked = *asked, .class_text = strdup(class_text)};
  if (asked->family != NULL) copy = malloc(sizeof *copy);
  if (copy != NULL) *copy = *asked->family;
  problem.asked.family = copy;
  problems->items[problems->count++] = problem;
  if (problem.class_text != NULL && (asked->family == NULL) == (copy == NULL)) return KJIT_OK;
  return error_say(error, KJIT_ERR_NO_MEMORY, "out of memory for %zu problems", problems->count);
}

static kjit_status add(struct tune_problems *problems, const kjit_attention_problem *asked, kjit_error *error) {
  const kjit_tune_problem problem = {.attention = *asked};
  return keep(problems, &problem, error);
}

static kjit_status add_of_family(struct tune_problems *problems, const char *text, kjit_error *error) {
  kjit_family_problem problem;
  const kjit_tune_problem asked = {.family = &problem};
  const kjit_status status = kjit_family_problem_parse(problems->family, text, &problem, error);
  return status == KJIT_OK ? keep(problems, &asked, error) : status;
}

kjit_status tune_problems_set_family(struct tune_problems *problems, const char *path, kjit_error *error) {
  return family_files_find(&problems->files, path, NULL, &problems->family, error);
}

/* ---- Sets ---- */

static kjit_attention_problem problem_of(int64_t batch, int64_t heads, int64_t seq, int64_t head_dim) {
  return (kjit_attention_problem)PROBLEM_OF(.dtype = KJIT_BF16, .head_dim = head_dim, .head_dim_v = head_dim,
                                            .batch = batch, .heads_q = heads, .heads_kv = heads, .seq_q = seq,
                                            .seq_kv = seq);
}

/* Add the problem twice: without a mask and causal. */
static kjit_status add_both(struct tune_problems *problems, kjit_attention_problem asked, kjit_error *error) {
  kjit_status status = add(problems, &asked, error);
  asked.flags |= KJIT_ATTENTION_CAUSAL;
  return status == KJIT_OK ? add(problems, &asked, error) : status;
}

/* Set "cells": the 36 cells of docs/performance.md, each of 16k tokens with hidden size 2048. */
static kjit_status add_cells(struct tune_problems *problems, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (int64_t head_dim = 64; head_dim <= 256; head_dim *= 2)
    for (int64_t seq = 512; seq <= 16384 && status == KJIT_OK; seq *= 2)
      status = add_both(problems, problem_of(16384 / seq, 2048 / head_dim, seq, head_dim), error);
  return status;
}

/* Set "small": one batch of 8 heads, whose query tiles fill less than half of a large card's SMs. */
static kjit_status add_small(struct tune_problems *problems, kjit_error *error) {
  kjit_status status = KJIT_OK;
  for (int64_t head_dim = 64; head_dim <= 128; head_dim *= 2)
    for (int64_t seq = 1024; seq <= 4096 && status == KJIT_OK; seq *= 2)
      status = add_both(problems, problem_of(1, 8, seq, head_dim), error);
  return status;
}

/* Set "decode": 1, 16 or 128 queries against 8k or 64k keys, with 64 query heads over 8 key heads and 32 over 1, for
 * batches of 1 and 16. */
static kjit_status add_decode(struct tune_problems *problems, kjit_error *error) {
  static const int64_t heads[][2] = {{64, 8}, {32, 1}}, queries[] = {1, 16, 128}, keys[] = {8192, 65536},
                       batches[] = {1, 16};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < 2 * 3 * 2 * 2 && status == KJIT_OK; i++) {
    kjit_attention_problem asked = problem_of(batches[i % 2], heads[i / 12][0], queries[i / 4 % 3], 128);
    asked.heads_kv = heads[i / 12][1];
    asked.seq_kv = keys[i / 2 % 2];
    status = add(problems, &asked, error);
  }
  return status;
}

/* Set "odd": head sizes between the powers of two, unequal head sizes, and lengths that no tile divides. */
static kjit_status add_odd(struct tune_problems *problems, kjit_error *error) {
  static const int64_t head_dims[] = {40, 72, 80, 96, 112, 160, 192}, lengths[] = {1000, 4097, 8190};
  kjit_status status = KJIT_OK;
  for (size_t i = 0; i < sizeof head_dims / sizeof *head_dims && status == KJIT_OK; i++)
    status = add_both(problems, problem_of(4, 16, 4096, head_dims[i]), error);
  kjit_attention_problem unequal = problem_of(4, 16, 4096, 192);
  unequal.head_dim_v = 128;
  if (status == KJIT_OK) status = add_both(problems, unequal, error);
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths && status == KJIT_OK; i++)
    status = add_both(problems, problem_of(4, 16, lengths[i], 128), error);
  return status;
}

kjit_status tune_problems_add_set(struct tune_problems *problems, const char *set, kjit_error *error) {
  static const struct {
    const char *name;
    kjit_status (*add)(struct tune_problems *problems, kjit_error *error);
  } sets[] = {{"cells", add_cells}, {"small", add_small}, {"decode", add_decode}, {"odd", add_odd}};
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
    if (strcmp(sets[i].name, set) == 0) return sets[i].add(problems, error);
  return error_say(error, KJIT_ERR_NOT_FOUND, "--set %.40s: cells, small, decode or odd is expected", set);
}

/* ---- Texts ---- */

/* Only forward calls are tuned; others are skipped, as other lines of a manifest are. */
static kjit_status add_forward(struct tune_problems *problems, const struct trial_problem *problem, kjit_error *error) {
  if (problem->pass == PASS_FORWARD) return add(problems, &problem->asked, error);
  problems->skipped++;
  return KJIT_OK;
}

/* Add the problem of a manifest line "attention ARCH PROBLEM"; `at` is the architecture. The problem is parsed with
 * blanks in front, so that the columns in messages are those of the line. */
static kjit_status add_line(struct tune_problems *problems, const char *line, const char *at, kjit_error *error) {
  char padded[MANIFEST_LINE_MAX + 1];
  struct trial_problem problem;
  at += strcspn(at, blanks); /* the architecture */
  at += strspn(at, blanks);
  const int column = (int)(at - line);
  if (*at == '\0') return error_say(error, KJIT_ERR_PARSE, "column %d: a problem is missing", column + 1);
  snprintf(padded, sizeof padded, "%*s%s", column, "", at);
  const kjit_status status = attention_text_parse(padded, &problem, error);
  return status == KJIT_OK ? add_forward(problems, &problem, error) : status;
}

kjit_status tune_problems_add_text(struct tune_problems *problems, const char *text, kjit_error *error) {
  struct trial_problem problem;
  const char *at = text + strspn(text, blanks);
  const size_t bytes = strcspn(at, blanks);
  if (strlen(text) > MANIFEST_LINE_MAX)
    return error_say(error, KJIT_ERR_PARSE, "a line is at most %d bytes long", MANIFEST_LINE_MAX);
  if (problems->family != NULL) return add_of_family(problems, text, error);
  if (at[bytes] == '\0') {
    const kjit_status status = attention_text_parse(text, &problem, error);
    return status == KJIT_OK ? add_forward(problems, &problem, error) : status;
  }
  if (bytes == strlen("attention") && strncmp(at, "attention", bytes) == 0)
    return add_line(problems, text, at + bytes + strspn(at + bytes, blanks), error);
  problems->skipped++;
  return KJIT_OK;
}

/* Put "FILE:LINE: " in front of a message. */
static kjit_status locate(const char *path, size_t number, kjit_error *error) {
  kjit_error located = {.status = error->status};
  snprintf(located.message, sizeof located.message, "%.200s:%zu: %.250s", path, number, error->message);
  *error = located;
  return (kjit_status)error->status;
}

static kjit_status add_stream(struct tune_problems *problems, FILE *stream, const char *path, kjit_error *error) {
  char line[MANIFEST_LINE_MAX + 2];
  for (size_t number = 1; fgets(line, sizeof line, stream) != NULL; number++) {
    const size_t bytes = strcspn(line, "\r\n");
    const bool whole = line[bytes] != '\0' || feof(stream) != 0;
    line[bytes] = '\0';
    const char first = line[strspn(line, blanks)];
    if (!whole)
      error_say(error, KJIT_ERR_PARSE, "a line is at most %d bytes long", MANIFEST_LINE_MAX);
    else if (first != '\0' && first != '#')
      (void)!tune_problems_add_text(problems, line, error);
    if (error->status != KJIT_OK) return locate(path, number, error);
  }
  return ferror(stream) ? error_say(error, KJIT_ERR_IO, "%s: %s", path, strerror(errno)) : KJIT_OK;
}

kjit_status tune_problems_add_manifest(struct tune_problems *problems, const char *path, kjit_error *error) {
  if (strcmp(path, "-") == 0) return add_stream(problems, stdin, "standard input", error);
  FILE *stream = fopen(path, "r");
  if (stream == NULL) return error_say(error, KJIT_ERR_IO, "%s: %s", path, strerror(errno));
  const kjit_status status = add_stream(problems, stream, path, error);
  fclose(stream);
  return status;
}
