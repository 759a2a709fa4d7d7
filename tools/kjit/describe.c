/* kjit describe: the kernel that the planner's rules choose for a problem on a card that need not be here, and the
 * figures of the cards that are known. Nothing is compiled, and no GPU, driver or compiler is asked; only where no card
 * is named are the first GPU's figures read.
 *
 * Threads: one. */
#include "attention_text.h"
#include "command.h"

#include <stdbool.h>
#include <stdio.h>

static const char usage[] =
    "usage: kjit describe PROBLEM [--card NAME] [--json]\n"
    "       kjit describe --cards [--json]\n\n"
    "Prints the family and the config that the rules choose for an attention problem on a card, without a tuned\n"
    "table, such as 'kjit describe --card H20 dtype=bf16,head_dim=128,heads_q=32,seq_q=4096,causal=1'. With "
    "--card it needs no\n"
    "GPU.\n\n"
    "PROBLEM is key=value, separated by commas:\n" ATTENTION_TEXT_HELP
    "\n  --card NAME  a card of --cards, or its name as the driver has it; without it the first GPU\n"
    "  --cards      the cards that are known, with the figures that kernels are chosen by\n"
    "  --json       one JSON object on stdout\n";

static json_t *card_json(const kjit_device_info *card) {
  return json_pack("{s:s, s:s, s:i, s:i, s:I, s:i, s:i, s:i}", "name", card->name, "arch", card->arch_specific,
                   "multiprocessors", (int)card->multiprocessors, "max_shared_per_block",
                   (int)card->max_shared_per_block, "l2_bytes", (json_int_t)card->l2_bytes, "memory_gb_s",
                   (int)card->memory_gb_s, "load_mhz", (int)card->load_mhz, "tensor_flops", (int)card->tensor_flops);
}

static int list_cards(bool json) {
  json_t *cards = json_object();
  const char *name;
  if (!json) printf("%-10s %-9s %5s %7s %9s %6s %12s\n", "card", "arch", "SMs", "L2 MiB", "GB/s", "MHz", "op/clock/SM");
  for (uint32_t i = 0; (name = kjit_device_known(i)) != NULL; i++) {
    kjit_device_info card = {.struct_size = sizeof card};
    kjit_error error;
    if (kjit_device_find(name, &card, &error) != KJIT_OK) continue;
    json_object_set_new(cards, name, card_json(&card));
    if (!json)
      printf("%-10s %-9s %5u %7u %9u %6u %12u\n", name, card.arch_specific, card.multiprocessors, card.l2_bytes >> 20,
             card.memory_gb_s, card.load_mhz, card.tensor_flops);
  }
  if (json) return print_json(cards);
  json_decref(cards);
  return print_text("");
}

static kjit_status find_card(const char *name, kjit_device_info *card, kjit_error *error) {
  kjit_runtime *runtime = NULL;
  if (name) return kjit_device_find(name, card, error);
  kjit_status status = open_runtime(&runtime, error);
  if (status == KJIT_OK) status = kjit_device_get_info(runtime, 0, card, error);
  kjit_runtime_destroy(runtime);
  if (status == KJIT_ERR_NO_DRIVER) {
    const kjit_error cause = *error;
    error->status = KJIT_OK;
    return error_say(error, status,
                     "no card is named (--card; 'kjit describe --cards' lists them), and no GPU is here: %s",
                     cause.message);
  }
  return status;
}

/* KJIT_OK if a known card computes the problem; else why the last of them does not, because then a GPU is not what is
 * missing. */
static kjit_status judge_on_known_cards(const kjit_attention_problem *problem, kjit_error *error) {
  const char *name;
  kjit_status status = KJIT_OK;
  for (uint32_t i = 0; (name = kjit_device_known(i)) != NULL; i++) {
    kjit_device_info card = {.struct_size = sizeof card};
    kjit_config config;
    *error = (kjit_error){0};
    status = kjit_device_find(name, &card, error);
    if (status == KJIT_OK) status = kjit_attention_choose_for(problem, &card, &config, error);
    if (status == KJIT_OK) return KJIT_OK;
  }
  return status;
}

static int describe(const char *problem_text, const char *card_name, bool json) {
  struct trial_problem problem;
  kjit_device_info card = {.struct_size = sizeof card};
  kjit_config config, front;
  kjit_error error = {0};
  char text[KJIT_CONFIG_TEXT_MAX];
  kjit_status status = attention_text_parse(problem_text, &problem, &error);
  if (status == KJIT_OK && !card_name) status = judge_on_known_cards(&problem.asked, &error);
  if (status == KJIT_OK) status = find_card(card_name, &card, &error);
  if (status == KJIT_OK) status = kjit_attention_choose_for(&problem.asked, &card, &config, &error);
  if (status == KJIT_OK) status = kjit_attention_front(&config, &problem.asked, &card, &front, &error);
  if (status == KJIT_OK) status = kjit_config_print(&config, 0, text, sizeof text, &error);
  if (status != KJIT_OK) return report_failure(json, &error, NULL);
  if (json)
    return print_json(json_pack("{s:o, s:s, s:s, s:s?}", "card", card_json(&card), "family",
                                kjit_family_name(config.family), "config", text, "front",
                                front.family ? kjit_family_name(front.family) : NULL));
  printf("%s %s\n", kjit_family_name(config.family), text);
  if (front.family)
    printf("behind %s, which copies K and V into rows of whole lines\n", kjit_family_name(front.family));
  return print_text("");
}

static int run_describe(int argc, char **argv) {
  struct option_list words = {0};
  const char *card = NULL;
  bool cards = false, json = false;
  const struct option table[] = {{OPTION_TEXT, "--card", &card, 0, 0},
                                 {OPTION_FLAG, "--cards", &cards, 0, 0},
                                 {OPTION_FLAG, "--json", &json, 0, 0},
                                 {OPTION_END, NULL, NULL, 0, 0}};
  int code = options_read(argc, argv, table, &words, usage);
  if (code < 0) {
    if (cards && words.count == 0)
      code = list_cards(json);
    else if (!cards && words.count == 1)
      code = describe(words.items[0], card, json);
    else
      code = usage_error("describe takes one problem, or --cards");
  }
  option_list_free(&words);
  return code;
}

const struct command command_describe = {"describe", "which kernel the rules choose for a problem on a card",
                                         run_describe, NULL};
