/* Tuned tables as text: tune_text.h shows the format.
 *
 * A reader goes line by line; the first thing that is wrong ends it, and the message gets the line's number in front.
 * Rows measured on other kernels are counted and left out. Threads: pure over the caller's memory. */
#include "family/tune/tune_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "family/config.h"
#include "family/pair_form.h"
#include "family/scanner.h"

#define FIRST_LINE "kjit-tuned 1"

/* Largest median that is believed: one day. */
#define MOST_MICROSECONDS INT64_C(86400000000)

struct reader {
  const char *at, *end; /* of the text */
  size_t number;        /* of the line, from 1 */
  char line[TUNE_LINE_MAX];
  struct scanner scanner; /* over the line; its error is `inner` */
  kjit_error inner;
};

static void reader_init(struct reader *reader, const char *text, size_t bytes) {
  *reader = (struct reader){.at = text, .end = text + bytes};
  reader->scanner.error = &reader->inner;
}

static kjit_status line_fault(struct reader *reader, const char *rule) {
  return error_set(&reader->inner, KJIT_ERR_PARSE, "%s", rule);
}

/* Go to the next line. A line that is too long, or has no end, is an error. */
static kjit_status next_line(struct reader *reader) {
  const char *newline = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
  reader->number++;
  if (!newline) return line_fault(reader, "column 1: the file ends before its line \"end\"");
  const size_t bytes = (size_t)(newline - reader->at);
  if (bytes >= sizeof reader->line) return line_fault(reader, "column 1: a line is at most 8191 bytes long");
  memcpy(reader->line, reader->at, bytes);
  reader->line[bytes] = '\0';
  reader->at = newline + 1;
  reader->scanner.start = reader->scanner.at = reader->line;
  return strlen(reader->line) == bytes ? KJIT_OK : line_fault(reader, "column 1: a line has no NUL in it");
}

/* Put the line's number in front of the error's message. */
static kjit_status locate(const struct reader *reader, kjit_error *error) {
  return error_set(error, (kjit_status)reader->inner.status, "line %zu: %.450s", reader->number, reader->inner.message);
}

static kjit_status scan_blank(struct scanner *scanner) {
  if (*scanner->at != ' ') return scan_unexpected(scanner, "a blank");
  scanner->at++;
  return KJIT_OK;
}

/* Go to the next line, which must begin with this word. */
static kjit_status begin_line(struct reader *reader, const char *word) {
  char expected[40];
  const kjit_status status = next_line(reader);
  if (status != KJIT_OK) return status;
  snprintf(expected, sizeof expected, "\"%s\"", word);
  if (!scan_word(&reader->scanner, word)) return scan_unexpected(&reader->scanner, expected);
  return scan_blank(&reader->scanner);
}

/* ---- Header ---- */

static kjit_status read_text(struct reader *reader, const char *word, char *out, size_t capacity) {
  const kjit_status status = begin_line(reader, word);
  if (status != KJIT_OK) return status;
  struct scanner *scanner = &reader->scanner;
  const size_t bytes = strlen(scanner->at);
  if (!bytes) return scan_unexpected(scanner, "a value");
  if (bytes >= capacity) return scan_unexpected(scanner, "a shorter value");
  for (size_t i = 0; i < bytes; i++, scanner->at++) {
    if ((unsigned char)*scanner->at < ' ' || *scanner->at == 0x7F) return scan_unexpected(scanner, "printable text");
    out[i] = *scanner->at;
  }
  out[bytes] = '\0';
  return KJIT_OK;
}

static kjit_status read_number(struct reader *reader, const char *word, uint32_t *out) {
  int32_t value = 0;
  kjit_status status = begin_line(reader, word);
  if (status == KJIT_OK) status = scan_digits(&reader->scanner, "a number", &value);
  if (status == KJIT_OK && *reader->scanner.at) status = scan_unexpected(&reader->scanner, "the end of the line");
  *out = (uint32_t)value;
  return status;
}

static kjit_status read_kernels(struct reader *reader, const char *family, struct digest *out) {
  kjit_status status = begin_line(reader, "kernels");
  struct scanner *scanner = &reader->scanner;
  if (status == KJIT_OK && !scan_word(scanner, family)) status = scan_unexpected(scanner, family);
  if (status == KJIT_OK) status = scan_blank(scanner);
  if (status != KJIT_OK) return status;
  return digest_from_hex(out, scanner->at, strlen(scanner->at)) ? KJIT_OK : scan_unexpected(scanner, "64 hex digits");
}

static kjit_status read_first(struct reader *reader) {
  const kjit_status status = next_line(reader);
  if (status != KJIT_OK || !strcmp(reader->line, FIRST_LINE)) return status;
  return scan_unexpected(&reader->scanner, "\"" FIRST_LINE "\"");
}

/* Read the header, whose lines have a fixed order. */
static kjit_status read_header(struct reader *reader, const struct tune_subject *subject, struct tune_header *header) {
  *header = (struct tune_header){0};
  kjit_status status = read_first(reader);
  if (status == KJIT_OK) status = read_text(reader, "device", header->device, sizeof header->device);
  if (status == KJIT_OK) status = read_text(reader, "arch", header->arch, sizeof header->arch);
  if (status == KJIT_OK) status = read_number(reader, "multiprocessors", &header->multiprocessors);
  if (status == KJIT_OK) status = read_number(reader, "driver", &header->driver);
  if (status == KJIT_OK) status = read_text(reader, "library", header->library, sizeof header->library);
  if (status == KJIT_OK) status = read_text(reader, "compiler", header->compiler, sizeof header->compiler);
  if (status == KJIT_OK) status = read_text(reader, "date", header->date, sizeof header->date);
  for (size_t i = 0; i < subject->family_count && status == KJIT_OK; i++)
    status = read_kernels(reader, subject->families[i]->table.family, &header->kernels[i]);
  return status;
}

kjit_status tune_text_read_header(const struct tune_subject *subject, const char *text, size_t bytes,
                                  struct tune_header *header, kjit_error *error) {
  struct reader reader;
  reader_init(&reader, text, bytes);
  return read_header(&reader, subject, header) == KJIT_OK ? KJIT_OK : locate(&reader, error);
}

/* ---- Rows ---- */

/* Read microseconds with three decimals. */
static kjit_status read_ns(struct scanner *scanner, uint64_t *ns) {
  const struct scanner before = *scanner;
  int64_t value = 0;
  size_t digits = 0, decimals = 0;
  for (; *scanner->at >= '0' && *scanner->at <= '9' && value <= MOST_MICROSECONDS; scanner->at++, digits++)
    value = 10 * value + (*scanner->at - '0');
  if (*scanner->at == '.') {
    for (scanner->at++; *scanner->at >= '0' && *scanner->at <= '9' && decimals < 3; scanner->at++, decimals++)
      value = 10 * value + (*scanner->at - '0');
  }
  *ns = (uint64_t)value;
  if (digits && decimals == 3 && value > 0 && value <= 1000 * MOST_MICROSECONDS) return scan_blank(scanner);
  return scan_unexpected(&before, "microseconds with three decimals");
}

/* Copy a part of the line with blanks in front, so that columns in messages are those of the line. */
static void isolate(const struct reader *reader, size_t bytes, char out[TUNE_LINE_MAX]) {
  const size_t column = (size_t)(reader->scanner.at - reader->line);
  memset(out, ' ', column);
  memcpy(out + column, reader->scanner.at, bytes);
  out[column + bytes] = '\0';
}

static kjit_status read_class(struct reader *reader, const struct tune_subject *subject, int32_t *class) {
  char alone[TUNE_LINE_MAX];
  const size_t bytes = strcspn(reader->scanner.at, " ");
  isolate(reader, bytes, alone);
  const kjit_status status = pair_form_parse(subject->class, alone, class, &reader->inner);
  reader->scanner.at += bytes;
  return status == KJIT_OK ? scan_blank(&reader->scanner) : status;
}

/* Read family and config. When the family's kernels are not this library's, the config is left unread, because it may
 * have other fields. */
static kjit_status read_choice(struct reader *reader, const struct tune_table *table, const struct digest *kernels,
                               struct tune_row *row, bool *stale) {
  const struct tune_subject *subject = table->subject;
  struct scanner *scanner = &reader->scanner;
  char alone[TUNE_LINE_MAX];
  row->rules = !strcmp(scanner->at, "rules");
  if (row->rules) return KJIT_OK;
  const size_t bytes = scan_word_length(scanner->at), index = tune_subject_find(subject, scanner->at, bytes);
  if (index == subject->family_count) return scan_unexpected(scanner, "a family or \"rules\"");
  scanner->at += bytes;
  kjit_status status = scan_blank(scanner);
  *stale = !digest_equal(&table->header.kernels[index], &kernels[index]);
  if (status != KJIT_OK || *stale) return status;
  isolate(reader, strlen(scanner->at), alone);
  row->family = subject->families[index];
  return config_parse(row->family, alone, row->values, &reader->inner);
}

/* True when all families' kernels are this library's. A row that says "rules" speaks of all kernels that it was
 * measured against. */
static bool all_known(const struct tune_table *table, const struct digest *kernels) {
  for (size_t i = 0; i < table->subject->family_count; i++) {
    if (!digest_equal(&table->header.kernels[i], &kernels[i])) return false;
  }
  return true;
}

static kjit_status add_row(struct reader *reader, struct tune_table *table, const struct tune_row *row,
                           const struct family_place *place) {
  if (tune_table_find(table, row->class)) return line_fault(reader, "column 5: this class stands in the table before");
  if (tune_row_check(table->subject, row, place, NULL) != KJIT_OK) {
    table->broken++;
    return KJIT_OK;
  }
  return tune_table_add(table, row, 0, &reader->inner);
}

static kjit_status read_row(struct reader *reader, struct tune_table *table, const struct digest *kernels,
                            const struct family_place *place, enum tune_origin origin) {
  struct tune_row row = {.origin = origin};
  bool stale = false;
  kjit_status status = read_class(reader, table->subject, row.class);
  if (status == KJIT_OK) status = read_ns(&reader->scanner, &row.ns);
  if (status == KJIT_OK) status = read_ns(&reader->scanner, &row.rules_ns);
  if (status == KJIT_OK) status = read_choice(reader, table, kernels, &row, &stale);
  if (status != KJIT_OK) return status;
  if (row.rules) stale = !all_known(table, kernels);
  if (!stale) return add_row(reader, table, &row, place);
  table->stale++;
  return KJIT_OK;
}

static kjit_status read_end(struct reader *reader, size_t rows) {
  struct scanner *scanner = &reader->scanner;
  int32_t count = 0;
  kjit_status status = scan_blank(scanner);
  if (status == KJIT_OK) status = scan_digits(scanner, "the number of rows", &count);
  if (status == KJIT_OK && *scanner->at) status = scan_unexpected(scanner, "the end of the line");
  if (status == KJIT_OK && (size_t)count != rows) status = line_fault(reader, "column 5: there are not so many rows");
  if (status == KJIT_OK && reader->at != reader->end) {
    reader->number++;
    status = line_fault(reader, "column 1: nothing may stand behind the line \"end\"");
  }
  return status;
}

static kjit_status read_rows(struct reader *reader, struct tune_table *table, const struct digest *kernels,
                             const struct family_place *place, enum tune_origin origin) {
  for (size_t rows = 0;; rows++) {
    kjit_status status = next_line(reader);
    if (status != KJIT_OK) return status;
    if (scan_word(&reader->scanner, "end")) return read_end(reader, rows);
    if (!scan_word(&reader->scanner, "row")) return scan_unexpected(&reader->scanner, "\"row\" or \"end\"");
    status = scan_blank(&reader->scanner);
    if (status == KJIT_OK) status = read_row(reader, table, kernels, place, origin);
    if (status != KJIT_OK) return status;
  }
}

kjit_status tune_text_read(struct tune_table *table, const char *text, size_t bytes,
                           const struct digest kernels[TUNE_FAMILIES_MAX], const struct family_place *place,
                           enum tune_origin origin, kjit_error *error) {
  struct reader reader;
  reader_init(&reader, text, bytes);
  kjit_status status = read_header(&reader, table->subject, &table->header);
  if (status == KJIT_OK) status = read_rows(&reader, table, kernels, place, origin);
  return status == KJIT_OK ? KJIT_OK : locate(&reader, error);
}

/* ---- Writing ---- */

static void write_header(const struct tune_subject *subject, const struct tune_header *header, struct text *out) {
  text_append(out, FIRST_LINE "\n");
  text_appendf(out, "device %s\narch %s\nmultiprocessors %u\ndriver %u\n", header->device, header->arch,
               header->multiprocessors, header->driver);
  text_appendf(out, "library %s\ncompiler %s\ndate %s\n", header->library, header->compiler, header->date);
  for (size_t i = 0; i < subject->family_count; i++) {
    char hex[DIGEST_HEX_BYTES];
    digest_to_hex(&header->kernels[i], hex);
    text_appendf(out, "kernels %s %s\n", subject->families[i]->table.family, hex);
  }
}

static void write_ns(uint64_t ns, struct text *out) {
  text_appendf(out, " %llu.%03llu", (unsigned long long)(ns / 1000), (unsigned long long)(ns % 1000));
}

static void write_row(const struct tune_subject *subject, const struct tune_row *row, struct text *out) {
  text_append(out, "row ");
  pair_form_print(subject->class, row->class, out);
  write_ns(row->ns, out);
  write_ns(row->rules_ns, out);
  if (row->rules) {
    text_append(out, " rules\n");
    return;
  }
  text_appendf(out, " %s ", row->family->table.family);
  config_print(row->family, row->values, out);
  text_append(out, "\n");
}

void tune_text_write(struct tune_table *table, struct text *out) {
  tune_table_sort(table);
  write_header(table->subject, &table->header, out);
  for (const struct tune_row *row = table->rows; row; row = row->hh.next)
    write_row(table->subject, row, out);
  text_appendf(out, "end %zu\n", table->count);
}
