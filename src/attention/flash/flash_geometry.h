/* Numbers that follow from a config and a problem's size. */
#ifndef KJIT_ATTENTION_FLASH_FLASH_GEOMETRY_H
#define KJIT_ATTENTION_FLASH_FLASH_GEOMETRY_H

#include <kjit/flash_forward.h>

/* Blocks in x (tiles of B_r query rows), y (heads) and z (batch). x is innermost so that the blocks that read the same
 * K and V run together. The sizes have passed flash_arguments_check(). */
void flash_geometry_grid(uint32_t B_r, int64_t seq_q, int64_t heads, int64_t batch, uint32_t grid[3]);

#endif
