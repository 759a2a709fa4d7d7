/* Goes through a source once: comments, strings, raw strings and characters are skipped, numbers with digit separators
 * (1'000) are not taken for characters, and every other word is looked at. Conditions are not evaluated: a constant
 * under an #if that is never true counts as used.
 *
 * Threads: nothing is shared. */
#include "family/definition/constant_scan.h"

#include <string.h>

#define PREFIX "KJIT_"

void constant_scan_begin(struct constant_scan *scan, const char *text, size_t bytes) {
  *scan = (struct constant_scan){text, text, text + bytes, 1};
}

static bool is_word(char letter) {
  return letter == '_' || (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
         (letter >= 'A' && letter <= 'Z');
}

static bool starts(const struct constant_scan *scan, const char *word) {
  const size_t bytes = strlen(word);
  return (size_t)(scan->end - scan->at) >= bytes && !memcmp(scan->at, word, bytes);
}

static void step(struct constant_scan *scan) {
  scan->line += *scan->at == '\n';
  scan->at++;
}

/* Go on behind the next `mark`, or to the end. */
static void skip_past(struct constant_scan *scan, const char *mark) {
  while (scan->at < scan->end && !starts(scan, mark))
    step(scan);
  for (size_t i = strlen(mark); i > 0 && scan->at < scan->end; i--)
    step(scan);
}

/* A string or a character; one that is not closed ends with its line. */
static void skip_quoted(struct constant_scan *scan) {
  const char quote = *scan->at++;
  while (scan->at < scan->end && *scan->at != quote && *scan->at != '\n') {
    if (*scan->at == '\\' && scan->at + 1 < scan->end) step(scan);
    step(scan);
  }
  if (scan->at < scan->end && *scan->at == quote) scan->at++;
}

/* R"delimiter( … )delimiter" */
static void skip_raw(struct constant_scan *scan) {
  char mark[20] = ")";
  const char *const open = scan->at + 1; /* behind the R stands the quote; the caller is at the quote */
  size_t bytes = 0;
  while (open + bytes < scan->end && bytes < 16 && open[bytes] != '(')
    bytes++;
  memcpy(mark + 1, open, bytes);
  mark[1 + bytes] = '"';
  mark[2 + bytes] = '\0';
  skip_past(scan, mark);
}

static bool is_defined(const struct constant_scan *scan, const char *name) {
  static const char word[] = "define";
  const char *at = name;
  while (at > scan->start && (at[-1] == ' ' || at[-1] == '\t'))
    at--;
  if (at == name || (size_t)(at - scan->start) < sizeof word ||
      memcmp(at - (sizeof word - 1), word, sizeof word - 1) != 0)
    return false;
  at -= sizeof word - 1;
  while (at > scan->start && (at[-1] == ' ' || at[-1] == '\t'))
    at--;
  return at > scan->start && at[-1] == '#';
}

bool constant_scan_next(struct constant_scan *scan, struct constant *out) {
  while (scan->at < scan->end) {
    if (starts(scan, "//")) {
      skip_past(scan, "\n");
    } else if (starts(scan, "/*")) {
      scan->at += 2;
      skip_past(scan, "*/");
    } else if (*scan->at == '"' || *scan->at == '\'') {
      skip_quoted(scan);
    } else if (!is_word(*scan->at)) {
      step(scan);
    } else {
      const char *const word = scan->at;
      const bool number = *word >= '0' && *word <= '9';
      while (scan->at < scan->end && (is_word(*scan->at) || (number && *scan->at == '\'')))
        scan->at++;
      const size_t bytes = (size_t)(scan->at - word), prefix = sizeof PREFIX - 1;
      if (word[bytes - 1] == 'R' && bytes <= 3 && scan->at < scan->end && *scan->at == '"') skip_raw(scan);
      if (bytes <= prefix || memcmp(word, PREFIX, prefix) != 0) continue;
      *out = (struct constant){word + prefix, bytes - prefix, scan->line, is_defined(scan, word)};
      return true;
    }
  }
  return false;
}
