/* Does the machine code of a cubin of sm_90 or sm_90a let a buffer in shared memory go before it has been read?
 *
 * A warp that reads by ldmatrix what TMA has written then arrives at an mbarrier, so that TMA may write there again.
 * The arrival must not be issued while such a load is on its way, because nothing orders TMA's writes, which are of
 * another proxy, behind it. ptxas knows of no such rule (kernel_src/kjit/ptx/mbarrier.cuh,
 * mbarrier_arrive_when_read()).
 *
 * An instruction has 16 bytes. In its upper 8, from bit 41 on, are the six barriers of the scoreboard: the one that the
 * instruction frees when its result is there (3 bits from bit 46, 7 for none), and those that it waits for before it
 * is issued (6 bits from bit 52). The code is followed from instruction to instruction as it lies, whatever branches.
 *
 * Loads by ld.shared are not looked at, because most of them read what threads have written, behind which an arrival is
 * ordered. Those that read what TMA has written have come by their arrival, because a branch or a store depends on
 * them. */
#ifndef KJIT_TESTS_JIT_PENDING_LOADS_H
#define KJIT_TESTS_JIT_PENDING_LOADS_H

#include <elf.h>
#include <stdint.h>
#include <string.h>

#define SASS_OPCODE       0xfffu
#define SASS_LDSM         0x83bu /* ldmatrix */
#define SASS_SYNCS_ARRIVE 0x9a7u /* mbarrier.arrive */

/* Arrivals in a section of code that are issued while a load by ldmatrix is on its way. */
static inline size_t pending_loads_in_code(const unsigned char *code, size_t bytes) {
  size_t found = 0;
  unsigned pending = 0; /* barriers that a load frees */
  for (size_t at = 0; at + 16 <= bytes; at += 16) {
    uint64_t word[2];
    memcpy(word, code + at, sizeof word);
    const unsigned opcode = word[0] & SASS_OPCODE, frees = word[1] >> 46 & 7;
    pending &= ~(unsigned)(word[1] >> 52 & 63);
    if (opcode == SASS_SYNCS_ARRIVE && pending) found++;
    if (opcode == SASS_LDSM && frees < 6) pending |= 1u << frees;
  }
  return found;
}

/* The same in all code of a cubin. */
static inline size_t pending_loads_in(const void *cubin, size_t bytes) {
  const unsigned char *const data = cubin;
  Elf64_Ehdr head;
  size_t found = 0;
  if (bytes < sizeof head) return 0;
  memcpy(&head, data, sizeof head);
  for (size_t i = 0; i < head.e_shnum; i++) {
    Elf64_Shdr section;
    if (head.e_shoff + (i + 1) * sizeof section > bytes) return found;
    memcpy(&section, data + head.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_PROGBITS || !(section.sh_flags & SHF_EXECINSTR)) continue;
    if (section.sh_offset + section.sh_size <= bytes)
      found += pending_loads_in_code(data + section.sh_offset, section.sh_size);
  }
  return found;
}

#endif
