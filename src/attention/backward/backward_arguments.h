/* Checks of a backward call's arguments that hold for every family. Pure: no driver is asked. */
#ifndef KJIT_ATTENTION_BACKWARD_BACKWARD_ARGUMENTS_H
#define KJIT_ATTENTION_BACKWARD_BACKWARD_ARGUMENTS_H

#include <kjit/attention_backward.h>

/* Every tensor of a call, by name and in the order of the struct. */
enum { BACKWARD_TENSORS = 11 };
struct backward_tensor {
  const char *name;
  const kjit_tensor *tensor;
};
void backward_arguments_list(const kjit_attention_backward_args *args, struct backward_tensor out[BACKWARD_TENSORS]);

/* Check everything that does not depend on a family. `device` is the one that is current. KJIT_ERR_INVALID_ARG names
 * the tensor, the member and the rule. */
kjit_status backward_arguments_check(const kjit_attention_backward_args *args, int32_t device, kjit_error *error);

/* The forward call whose gradients are wanted. */
kjit_attention_args backward_arguments_forward(const kjit_attention_backward_args *args);

/* The problem that checked arguments describe. */
void backward_arguments_problem(const kjit_attention_backward_args *args, kjit_attention_problem *problem);

/* The gradients that are wanted: KJIT_GRADIENT_*. */
uint32_t backward_arguments_gradients(const kjit_attention_backward_args *args);

#endif
