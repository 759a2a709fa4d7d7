/* The parameters of a description's kernel: their types are read here, from spellings that look like C's.
 *
 * Threads: one thread makes a definition. */
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"
#include "family/definition/definition.h"
#include "family/element.h"

/* CUDA's limit is 4096 bytes before sm_70 and 32764 from there on; a struct is one parameter of it. */
#define STRUCT_BYTES_MAX 32764

/* A type's text without the blanks at its ends. */
struct spelling {
  const char *text;
  size_t bytes;
};

static bool is_blank(char letter) {
  return letter == ' ' || letter == '\t';
}

static struct spelling trim(struct spelling from) {
  while (from.bytes && is_blank(*from.text))
    from.text++, from.bytes--;
  while (from.bytes && is_blank(from.text[from.bytes - 1]))
    from.bytes--;
  return from;
}

static bool is_spelt(struct spelling spelling, const char *word) {
  return strlen(word) == spelling.bytes && !memcmp(word, spelling.text, spelling.bytes);
}

static bool take_prefix(struct spelling *spelling, const char *word) {
  const size_t bytes = strlen(word);
  if (spelling->bytes <= bytes || memcmp(spelling->text, word, bytes) != 0 || !is_blank(spelling->text[bytes]))
    return false;
  *spelling = trim((struct spelling){spelling->text + bytes, spelling->bytes - bytes});
  return true;
}

static kjit_status unknown_type(const struct definition_maker *maker, const kjit_family_text *type,
                                struct spelling spelling) {
  struct nearest nearest;
  nearest_begin(&nearest, spelling.text, spelling.bytes);
  for (size_t i = 0; element_at(i); i++)
    nearest_offer(&nearest, element_at(i)->name);
  nearest_offer(&nearest, "tensor_map");
  nearest_offer(&nearest, "void");
  for (size_t i = 0; i < maker->definition->field_count; i++)
    if (maker->definition->dtype_fields >> i & 1) nearest_offer(&nearest, maker->definition->field_names[i]);
  return definition_unknown(maker, type,
                            "no type: there are numbers (int32, float, ...), arrays (const fp16*, "
                            "field_of_a_dtype*, void*), tensor_map and struct(BYTES)",
                            &nearest);
}

/* "fp16*", "const dtype *", "void*": the spelling is what stands before the star. */
static kjit_status read_pointer(const struct definition_maker *maker, const kjit_family_text *type,
                                struct spelling spelling, kjit_parameter_info *info) {
  info->kind = KJIT_PARAMETER_POINTER;
  info->bytes = info->alignment = 8;
  info->is_const = take_prefix(&spelling, "const");
  if (is_spelt(spelling, "void")) return KJIT_OK;
  for (size_t i = 0; i < maker->definition->field_count; i++) {
    if (!(maker->definition->dtype_fields >> i & 1) || !is_spelt(spelling, maker->definition->field_names[i])) continue;
    info->dtype_field = (int32_t)i;
    return KJIT_OK;
  }
  const struct element *const element = element_from_name(spelling.text, spelling.bytes);
  if (!element) return unknown_type(maker, type, spelling);
  info->dtype = element->number;
  return KJIT_OK;
}

/* Reads "struct(24)". */
static kjit_status read_struct(const struct definition_maker *maker, const kjit_family_text *type,
                               struct spelling spelling, kjit_parameter_info *info) {
  const char *const start = spelling.text + strlen("struct(");
  const char *at = start;
  uint32_t bytes = 0;
  for (; *at >= '0' && *at <= '9' && bytes <= STRUCT_BYTES_MAX; at++)
    bytes = 10 * bytes + (uint32_t)(*at - '0');
  if (at == start || *at != ')' || at + 1 != spelling.text + spelling.bytes || !bytes || bytes > STRUCT_BYTES_MAX)
    return definition_refuse(maker, type, "a struct is written struct(BYTES), with 1 to %d bytes", STRUCT_BYTES_MAX);
  const uint32_t unit = bytes & (~bytes + 1);
  info->kind = KJIT_PARAMETER_STRUCT;
  info->bytes = bytes;
  info->alignment = unit < 16 ? unit : 16;
  return KJIT_OK;
}

static kjit_status read_type(const struct definition_maker *maker, const kjit_family_text *type,
                             kjit_parameter_info *info) {
  const struct spelling spelling = trim((struct spelling){type->text, strlen(type->text)});
  info->dtype = info->dtype_field = -1;
  if (spelling.bytes && spelling.text[spelling.bytes - 1] == '*')
    return read_pointer(maker, type, trim((struct spelling){spelling.text, spelling.bytes - 1}), info);
  if (is_spelt(spelling, "tensor_map")) {
    info->kind = KJIT_PARAMETER_TENSOR_MAP;
    info->bytes = 128;
    info->alignment = 64;
    return KJIT_OK;
  }
  if (spelling.bytes > 7 && !memcmp(spelling.text, "struct(", 7)) return read_struct(maker, type, spelling, info);
  const struct element *const element = element_from_name(spelling.text, spelling.bytes);
  if (!element) return unknown_type(maker, type, spelling);
  info->kind = element->is_integer ? KJIT_PARAMETER_INTEGER : KJIT_PARAMETER_FLOAT;
  info->bytes = info->alignment = element->bytes;
  info->dtype = element->number;
  info->is_signed = element->is_signed;
  return KJIT_OK;
}

/* Only integer parameters have a name that expressions can use. A pointer or a float in a grid's expression is
 * therefore "nothing is called so", which is what its author has to hear. */
static kjit_status make_parameter(const struct definition_maker *maker, size_t index) {
  struct family_definition *const definition = maker->definition;
  const kjit_family_parameter_row *const row = &maker->description->parameters[index];
  kjit_parameter_info *const info = &definition->parameters[index];
  kjit_status status = definition_check_name(maker, &row->name, "parameter");
  if (status != KJIT_OK) return status;
  for (size_t i = 0; i < definition->field_count; i++)
    if (!strcmp(definition->field_names[i], row->name.text))
      return definition_refuse(maker, &row->name, "the parameter %s has the name of a field, and the grid may use both",
                               row->name.text);
  for (size_t i = 0; i < index; i++)
    if (!strcmp(definition->parameter_names[i], row->name.text))
      return definition_refuse(maker, &row->name, "the parameter %s stands here twice", row->name.text);
  if (!row->type.text || strnlen(row->type.text, 200) == 200)
    return definition_refuse(maker, &row->name, "the parameter %s has no type, or one of more than 200 bytes",
                             row->name.text);
  info->name = definition->parameter_names[index] =
      arena_copy(&definition->arena, row->name.text, strlen(row->name.text));
  info->type = arena_copy(&definition->arena, row->type.text, strlen(row->type.text));
  if (!info->name || !info->type) return error_no_memory(maker->error);
  status = read_type(maker, &row->type, info);
  definition->integer_parameters[index] = info->kind == KJIT_PARAMETER_INTEGER ? info->name : NULL;
  definition->parameter_count = index + 1;
  return status;
}

kjit_status definition_make_parameters(const struct definition_maker *maker) {
  struct family_definition *const definition = maker->definition;
  const size_t count = maker->description->parameter_count;
  definition->parameters = arena_alloc_array(&definition->arena, count, sizeof *definition->parameters);
  definition->parameter_names = arena_alloc_array(&definition->arena, count, sizeof *definition->parameter_names);
  definition->integer_parameters = arena_alloc_array(&definition->arena, count, sizeof *definition->integer_parameters);
  if (!definition->parameters || !definition->parameter_names || !definition->integer_parameters)
    return error_no_memory(maker->error);
  for (size_t i = 0; i < count; i++) {
    const kjit_status status = make_parameter(maker, i);
    if (status != KJIT_OK) return status;
  }
  return KJIT_OK;
}
