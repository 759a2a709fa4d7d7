/* What a prepared call asks of a framework's tensors: what tells one call from another, and addresses. */
#ifndef KJIT_NATIVE_TENSORS_H
#define KJIT_NATIVE_TENSORS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

/* The names of the attributes that are asked for. False with an exception set. */
bool tensors_start(void);

/* signature(head, tensors): what tells calls apart: `head` and, of each of the tensors, shape, strides, dtype and
 * device, None for None. Only its equality with others means anything. */
PyObject *tensors_signature(PyObject *module, PyObject *args);

/* What the exchange table says of one tensor but its address, as bytes, a new reference; NULL without an exception: it
 * is left to its attributes, or no tensor. */
PyObject *tensors_facts(PyObject *tensor);

/* find(calls, head, tensors): what a dict has under the signature; None: nothing. */
PyObject *tensors_find(PyObject *module, PyObject *args);

/* Write the address of each tensor of a tuple to its place, an address in memory that the caller owns; a place that is
 * 0 and a tensor that is None are left out. False with an exception set. */
bool tensors_write(const uint64_t *places, Py_ssize_t count, PyObject *tensors);

#endif
