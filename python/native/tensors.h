/* What a prepared call asks of a framework's tensors: what tells one call from another, and addresses. */
#ifndef KJIT_NATIVE_TENSORS_H
#define KJIT_NATIVE_TENSORS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <stdbool.h>

/* The names of the attributes below. False with an exception set. */
bool tensors_start(void);

/* signature(head, tensors): a tuple of `head` and, for each of the tensors, its shape, strides and dtype, for the first
 * three, which are a problem's q, k and v, their device's number too, or None for None. */
PyObject *tensors_signature(PyObject *module, PyObject *args);

/* write_addresses(places, tensors): for each place that is not 0, an address in memory that the caller owns, the
 * tensor's own address is written there. */
PyObject *tensors_write_addresses(PyObject *module, PyObject *args);

#endif
