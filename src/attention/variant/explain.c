/* Says what a variant is: canonical text, classes of the score, how blocks are found, literals, digest.
 *
 * Threads: nothing is shared. */
#include "attention/variant/explain.h"

#include "kjit/attention/variant_functions.h"

static void explain_score(const kjit_attention_variant *variant, struct text *out) {
  static const struct {
    uint32_t term;
    const char *name;
  } terms[] = {
      {KJIT_VARIANT_TERM_ROW, "a row term"},           {KJIT_VARIANT_TERM_KEY, "a key term"},
      {KJIT_VARIANT_TERM_DISTANCE, "a distance"},      {KJIT_VARIANT_TERM_TILE, "a tile of a tensor"},
      {KJIT_VARIANT_TERM_GATHER, "gathered elements"}, {KJIT_VARIANT_TERM_OTHER, "another function of q and k"},
  };
  text_append(out, "score is: ");
  if (variant->class.is_identity) {
    text_append(out, "s itself\n");
    return;
  }
  text_append(out, variant->class.is_affine      ? "affine in s"
                   : variant->class.is_pointwise ? "a function of s"
                                                 : "a function of s, q and k");
  for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
    if (variant->class.terms & terms[i].term) text_appendf(out, ", plus %s", terms[i].name);
  text_append(out, "\n");
  if (variant->class.tile_rows)
    text_appendf(out, "terms: of t%u, by TMA where rows lie at multiples of 16 bytes\n", variant->class.tile - 1u);
}

static void explain_blocks(const kjit_attention_variant *variant, struct text *out) {
  if (variant->mask == VARIANT_NONE)
    text_append(out, "blocks: all of them\n");
  else if (variant->intervals.count)
    text_appendf(out, "blocks: from the bounds of %zu row interval%s\n", variant->intervals.count,
                 variant->intervals.count > 1 ? "s" : "");
  else
    text_append(out, "blocks: from the mask on ranges of q and k\n");
  if (variant->class.has_peak && (variant->mask == VARIANT_NONE || variant->intervals.count))
    text_append(out, "order: outwards from the block whose term is largest\n");
}

void variant_explain(const kjit_attention_variant *variant, struct text *out) {
  char hex[DIGEST_HEX_BYTES];
  digest_to_hex(&variant->digest, hex);
  text_append(out, variant->canonical);
  explain_score(variant, out);
  explain_blocks(variant, out);
  for (size_t i = 0; i < variant->scalar_count; i++)
    text_appendf(out, "s%zu: %s\n", i, variant->scalar_names[i]);
  for (size_t i = variant->scalar_count; i < variant->slots.count; i++) {
    if (variant->slots.types[i] == TYPE_real)
      text_appendf(out, "s%zu: %.9g\n", i, (double)kjit_float_from_bits(variant->slots.bits[i]));
    else
      text_appendf(out, "s%zu: %d\n", i, (int)(int32_t)variant->slots.bits[i]);
  }
  for (size_t i = 0; i < variant->tensor_count; i++)
    text_appendf(out, "t%zu: %s\n", i, variant->tensor_names[i]);
  text_appendf(out, "digest: %s\n", hex);
}
