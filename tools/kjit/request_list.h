/* Which kernels to build: from sets, from manifests, for several architectures. `error` is never NULL here. */
#ifndef KJIT_TOOLS_REQUEST_LIST_H
#define KJIT_TOOLS_REQUEST_LIST_H

#include <kjit/kjit.h>

#include "support/problem.h"
#include <stdbool.h>

#include "command.h"
#include "family_files.h"

/* Longest architecture name, with its NUL: "sm_100a" and room. */
#define ARCH_BYTES 16
/* Longest list: room for every set and architecture many times over, and a bound on what a manifest can ask for. */
#define MOST_REQUESTS 1000000

struct kernel_request {
  kjit_config config; /* canonical: equal code, equal request; without a family where `recorded` says what is asked */
  char *recorded;     /* the file of a request that was recorded with its sources; NULL: `config` */
  char *label;        /* its family and what people call it: "custom scale.cu scale"; NULL where `recorded` is */
  char arch[ARCH_BYTES];
};

/* Zero it first; request_list_free() ends it. */
struct request_list {
  struct kernel_request *items;
  size_t count;
  size_t capacity;
  size_t left_out;           /* requests left out because their architecture cannot run them; see manifest_read() */
  struct family_files files; /* families of users that the configs are of */
  kjit_runtime *planner; /* chooses for problems by the tables that the library ships; opened when it is first needed,
                          * and touches no file and no driver */
};
void request_list_free(struct request_list *list);

/* One architecture of a comma-separated list; `*at` moves behind it. False at the end. KJIT_ERR_PARSE for an empty or
 * overlong name goes to `error`, with false. */
bool arch_next(const char **at, char arch[ARCH_BYTES], kjit_error *error);

/* Check a config for the architecture, and make it canonical. */
kjit_status request_check(kjit_config *config, const char *arch, kjit_error *error);

/* The config that the library chooses for a problem there. KJIT_ERR_UNSUPPORTED says why no family computes it. */
kjit_status request_choose(kjit_runtime *runtime, const kjit_attention_problem *problem, const char *arch,
                           kjit_config *config, kjit_error *error);

/* Append a config that was checked for the architecture. */
kjit_status request_list_add(struct request_list *list, const kjit_config *config, const char *arch, kjit_error *error);

/* Append a request that was recorded with its sources; both texts are copied. */
kjit_status request_list_add_recorded(struct request_list *list, const char *path, const char *label, const char *arch,
                                      kjit_error *error);

/* Take out the requests that are of none of these families; an empty list means all. */
void request_list_keep_families(struct request_list *list, const struct option_list *families);

/* Get or build the kernel; flags are KJIT_BUILD_*. */
kjit_status request_artifact(kjit_runtime *runtime, const struct kernel_request *request, uint32_t flags,
                             kjit_artifact **artifact, kjit_error *error);

/* Append what the library chooses for a problem. */
kjit_status request_list_add_problem(struct request_list *list, const struct trial_problem *problem, const char *arch,
                                     kjit_error *error);

/* Every config of a family's named set, for each architecture of a comma-separated list. What a family's rules refuse
 * there is an error for kjit's own families, and counted in list->left_out for a user's, whose sets are one list for
 * every card. */
kjit_status request_list_add_set(struct request_list *list, const kjit_family *family, const char *set,
                                 const char *archs, kjit_error *error);

/* Take out the requests for which `leave_out`, of list->count items, says so. Returns how many those are. */
size_t request_list_leave_out(struct request_list *list, const bool *leave_out);

/* Sort the list and drop repetitions. Returns how many requests remain. */
size_t request_list_make_distinct(struct request_list *list);

/* Keep the requests of shard `index` of `count` (index from 1). A distinct list is ordered by the keys, without the
 * compiler that they name, and dealt out one by one. So machines that share nothing but the list agree, even when their
 * NVRTCs differ; the shards' sizes differ by one at most; and since keys are digests, each shard has its share of slow
 * kernels. */
kjit_status request_list_keep_shard(struct request_list *list, kjit_runtime *runtime, uint64_t index, uint64_t count,
                                    kjit_error *error);

/* A config as text, without its family; "" when it has none. */
void request_print_config(const kjit_config *config, char text[KJIT_CONFIG_TEXT_MAX]);

/* "flash_forward sm_80 (FP16, …): …", for messages. */
void request_print(const struct kernel_request *request, char *text, size_t capacity);

#endif
