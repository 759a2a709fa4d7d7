/* The numbers of a trace (_trace.py). */
#ifndef KJIT_NATIVE_TRACE_H
#define KJIT_NATIVE_TRACE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <stdbool.h>

/* Add the types Trace and Number, bases of _trace.Tracer and _trace.Scalar, to the module. False with an exception. */
bool trace_add_types(PyObject *module);

/* configure_trace(operate, most): _trace.operate_with(), for operands that are not told here, and how many numbers
 * become scalars. */
PyObject *trace_configure(PyObject *module, PyObject *args);

#endif
