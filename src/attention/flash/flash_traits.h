/* What a kernel computes, as it follows from a problem. Pure. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_TRAITS_H
#define KJIT_ATTENTION_FLASH_FLASH_TRAITS_H

#include <kjit/flash_forward.h>

enum { FLASH_MAX_HEAD = 256, FLASH_MIN_D_HEAD = 32 };

/* For a problem without defaults left open. Its sizes are taken as they are: the rules judge them. */
kjit_flash_traits flash_traits_of(const kjit_attention_problem *problem);

/* Columns that a head of so many has in shared memory: whole 16s. From 1 to FLASH_MAX_HEAD. */
int32_t flash_traits_columns(int32_t head_dim);

/* The d_head of a config for these head sizes: that of the larger one, at least FLASH_MIN_D_HEAD. */
int32_t flash_traits_d_head(const kjit_flash_traits *traits);

#endif
