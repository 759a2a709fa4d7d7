/* What `kjit tune` prints: for each class of problems the candidates, those that were refused and why, and the outcome;
 * then totals. As JSON for programs, as text for people. One thread. */
#include "tune_report.h"

#include <stdio.h>
#include <string.h>

static const char *state_name(const struct tune_class_report *class) {
  static const char *const names[] = {"open", "unsupported", "failed", "done"};
  return names[class->state];
}

static const struct entrant *winner_of(const struct tune_class_report *class) {
  return &class->field.items[class->winner];
}

/* ---- JSON ---- */

static json_t *config_json(const kjit_config *config) {
  char text[KJIT_CONFIG_TEXT_MAX];
  request_print_config(config, text);
  return json_text(text);
}

/* A candidate that was compiled, which the report tells of as such. */
static bool is_entrant(const struct field_of_entrants *field, size_t index) {
  for (size_t i = 0; i < field->count; i++)
    if (field->items[i].index == index) return true;
  return false;
}

static json_t *refused_json(const struct field_of_entrants *field) {
  json_t *refused = json_array();
  const kjit_tune_candidate *candidate;
  for (size_t i = 0; (candidate = kjit_tune_candidates_get(field->list, i)) != NULL; i++)
    if (candidate->refused[0] != '\0' && !is_entrant(field, i))
      json_array_append_new(
          refused, json_pack("{s:o, s:s}", "config", config_json(&candidate->config), "reason", candidate->refused));
  return refused;
}

static json_t *candidates_json(const struct tune_report *report, const struct field_of_entrants *field) {
  json_t *candidates = json_array();
  for (size_t i = 0; i < field->count; i++) {
    const struct entrant *entrant = &field->items[i];
    json_t *object = json_pack("{s:o, s:i}", "config", config_json(&entrant->config), "changes", (int)entrant->changes);
    if (report->compiled) {
      json_object_set_new(object, "registers", json_integer(entrant->registers));
      json_object_set_new(object, "spill_bytes", json_integer(entrant->spill_bytes));
      json_object_set_new(object, "dropped", entrant->refused[0] != '\0' ? json_text(entrant->refused) : json_null());
    }
    json_array_append_new(candidates, object);
  }
  return candidates;
}

static json_t *class_json(const struct tune_report *report, const struct tune_class_report *class) {
  const struct field_of_entrants *field = &class->field;
  json_t *object = json_pack("{s:s, s:s}", "class", field->problem->class_text, "state", state_name(class));
  if (class->message[0] != '\0') json_object_set_new(object, "message", json_text(class->message));
  if (class->state == TUNE_UNSUPPORTED || field->count == 0) return object;
  json_object_set_new(object, "family", json_string(kjit_family_name(field->items[0].config.family)));
  json_object_set_new(object, "rules", config_json(&field->items[0].config));
  if (report->dry_run) {
    json_object_set_new(object, "candidates", candidates_json(report, field));
    json_object_set_new(object, "refused", refused_json(field));
  } else {
    json_object_set_new(object, "candidates", json_integer((json_int_t)field->count));
    json_object_set_new(object, "refused", json_integer((json_int_t)field->refused));
    json_object_set_new(object, "dropped", json_integer((json_int_t) class->dropped));
  }
  if (class->state != TUNE_DONE) return object;
  json_object_set_new(object, "config", config_json(&winner_of(class)->config));
  json_object_set_new(object, "decided_by", json_string(class->winner == 0 ? "rules" : "table"));
  json_object_set_new(object, "microseconds", json_real(class->outcome.microseconds));
  json_object_set_new(object, "rules_microseconds", json_real(class->outcome.first_microseconds));
  json_object_set_new(object, "runs", json_integer((json_int_t) class->runs));
  json_object_set_new(object, "failed", json_integer((json_int_t) class->failed));
  if (class->failed > 0) json_object_set_new(object, "first_failure", json_text(class->failure));
  return object;
}

static size_t count_state(const struct tune_report *report, enum tune_state state) {
  size_t count = 0;
  for (size_t i = 0; i < report->count; i++)
    count += report->classes[i].state == state;
  return count;
}

static int print_as_json(const struct tune_report *report) {
  json_t *classes = json_array();
  for (size_t i = 0; i < report->count; i++)
    json_array_append_new(classes, class_json(report, &report->classes[i]));
  return print_json(
      json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:b, s:b, s:f, s:s, s:o}", "device", report->card->device.name,
                "arch", report->card->arch, "dry_run", (int)report->dry_run, "asked", (json_int_t)report->asked,
                "skipped", (json_int_t)report->skipped, "done", (json_int_t)count_state(report, TUNE_DONE), "failed",
                (json_int_t)count_state(report, TUNE_FAILED), "interrupted", (int)report->interrupted, "out_of_time",
                (int)report->out_of_time, "seconds", report->seconds, "table", report->table, "classes", classes));
}

/* ---- Text ---- */

static void print_candidates(const struct tune_report *report, const struct field_of_entrants *field) {
  const kjit_tune_candidate *candidate;
  char text[KJIT_CONFIG_TEXT_MAX];
  for (size_t i = 0; i < field->count; i++) {
    const struct entrant *entrant = &field->items[i];
    request_print_config(&entrant->config, text);
    printf("  %-9s  %s", i == 0 ? "rules" : "candidate", text);
    if (report->compiled) printf("  (%u registers)", entrant->registers);
    printf("%s%s\n", entrant->refused[0] != '\0' ? ": dropped: " : "", entrant->refused);
  }
  for (size_t i = 0; (candidate = kjit_tune_candidates_get(field->list, i)) != NULL; i++) {
    request_print_config(&candidate->config, text);
    if (candidate->refused[0] != '\0' && !is_entrant(field, i))
      printf("  refused    %s: %s\n", text, candidate->refused);
  }
}

static void print_outcome(const struct tune_class_report *class) {
  const kjit_contest_outcome *outcome = &class->outcome;
  char rules[KJIT_CONFIG_TEXT_MAX], winner[KJIT_CONFIG_TEXT_MAX];
  request_print_config(&class->field.items[0].config, rules);
  request_print_config(&winner_of(class)->config, winner);
  printf("  %zu candidates, %zu refused, %zu dropped, %zu runs\n", class->field.count, class->field.refused,
         class->dropped, class->runs);
  if (class->failed > 0) printf("  %zu failed, the first %s\n", class->failed, class->failure);
  printf("  rules  %10.3f us  %s\n", outcome->first_microseconds, rules);
  if (class->winner != 0)
    printf("  table  %10.3f us  %s  (%.2f x)\n", outcome->microseconds, winner,
           outcome->first_microseconds / outcome->microseconds);
}

static void print_class(const struct tune_report *report, const struct tune_class_report *class) {
  printf("%s: %s\n", class->field.problem->class_text,
         class->state == TUNE_DONE ? (class->winner == 0 ? "the rules stay" : "a row") : state_name(class));
  if (class->message[0] != '\0') printf("  %s\n", class->message);
  if (class->state == TUNE_DONE)
    print_outcome(class);
  else if (report->dry_run && class->state != TUNE_UNSUPPORTED)
    print_candidates(report, &class->field);
}

static void print_totals(const struct tune_report *report) {
  size_t candidates = 0, refused = 0, dropped = 0, rows = 0;
  for (size_t i = 0; i < report->count; i++) {
    const struct tune_class_report *class = &report->classes[i];
    candidates += class->field.count;
    refused += class->field.refused;
    dropped += class->dropped;
    rows += class->state == TUNE_DONE && class->winner != 0;
  }
  printf(
      "%zu problems in %zu classes on %s: %zu candidates, %zu refused by rules, %zu dropped by the compiler's report\n",
      report->asked, report->count, report->card->device.name[0] ? report->card->device.name : report->card->arch,
      candidates, refused, dropped);
  if (!report->dry_run)
    printf("%zu measured in %.0f s, %zu faster than the rules; %zu failed; table %s\n", count_state(report, TUNE_DONE),
           report->seconds, rows, count_state(report, TUNE_FAILED), report->table);
}

int tune_report_print(const struct tune_report *report, bool json) {
  if (json) return print_as_json(report);
  for (size_t i = 0; i < report->count; i++)
    print_class(report, &report->classes[i]);
  print_totals(report);
  return print_text("");
}
