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

/* The same of a tuple of tensors, a new reference. Where the exchange table tells of all of them, and `room` is enough,
 * *are_known is true and `addresses` has theirs, 0 of None; so a call that is known reads each tensor once. */
PyObject *tensors_key(PyObject *head, PyObject *tensors, uint64_t *addresses, Py_ssize_t room, bool *are_known);

/* Where a tensor lies: its address and device, -1 for the processor's memory. False with an exception set. */
bool tensors_place(PyObject *tensor, uint64_t *address, long *device);

/* Write the address of each tensor of a tuple to its place, an address in memory that the caller owns; a place that is
 * 0 and a tensor that is None are left out. False with an exception set. */
bool tensors_write(const uint64_t *places, Py_ssize_t count, PyObject *tensors);

#endif
