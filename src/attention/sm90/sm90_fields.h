/* The family's field table: the one description of its configs. */
#ifndef KJIT_ATTENTION_SM90_SM90_FIELDS_H
#define KJIT_ATTENTION_SM90_SM90_FIELDS_H

#include <kjit/attention_sm90.h>

#include "family/field_table.h"

extern const struct field_table sm90_fields;

#endif
