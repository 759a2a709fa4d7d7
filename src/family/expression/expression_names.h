/* What a name in an expression stands for. */
#ifndef KJIT_FAMILY_EXPRESSION_NAMES_H
#define KJIT_FAMILY_EXPRESSION_NAMES_H

#include "family/expression/expression_step.h"
#include "family/expression/expression_token.h"

/* The step that pushes the value of this name, and what it says about the names that the expression uses.
 * KJIT_ERR_PARSE for a name that is not known, with the nearest one, and for one that this expression may not use, with
 * the reason. */
kjit_status expression_resolve(const struct expression_scope *scope, const struct expression_source *source,
                               const struct token *name, struct expression *uses, struct expression_step *step,
                               kjit_error *error);

#endif
