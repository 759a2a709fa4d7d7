/* Steps of the last trace of a function, taken again (_replay.py). */
#ifndef KJIT_NATIVE_REPLAY_H
#define KJIT_NATIVE_REPLAY_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <stdbool.h>

/* Add the types Trace, Number and Mode to the module. False with an exception set. */
bool replay_start(PyObject *module);

/* configure_replay(operators, free_int, free_float, index): of each operator, in the order of replay.c, what a step of
 * it does and the function that writes one, forward and with the plain number first; what stands in a step for an int
 * and a float that became scalars; and what a step of an index does. */
PyObject *replay_configure(PyObject *module, PyObject *args);

/* configure_mode(getitem): PyTorch's function that indexes a tensor. */
PyObject *replay_configure_mode(PyObject *module, PyObject *function);

#endif
