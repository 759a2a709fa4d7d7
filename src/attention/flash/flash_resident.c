#include "attention/flash/flash_resident.h"

/* Only ever a pointer: the table is the generic one. */
static struct attention_table *table(struct flash_resident *resident) {
  return (struct attention_table *)resident;
}

struct flash_resident *flash_resident_create(const struct mem *mem) {
  return (struct flash_resident *)attention_table_create(mem, sizeof(kjit_flash_variant),
                                                         sizeof(struct flash_resident_kernel));
}

void flash_resident_destroy(struct flash_resident *resident) {
  attention_table_destroy(table(resident));
}

const struct flash_resident_kernel *flash_resident_find(struct flash_resident *resident,
                                                        const kjit_flash_variant *variant, int32_t device) {
  return attention_table_find(table(resident), variant, device);
}

const struct flash_resident_kernel *flash_resident_add(struct flash_resident *resident,
                                                       const kjit_flash_variant *variant, int32_t device,
                                                       const struct flash_resident_kernel *kernel) {
  return attention_table_add(table(resident), variant, device, kernel);
}
