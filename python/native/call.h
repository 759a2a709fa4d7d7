/* A prepared call of the library on tensors. */
#ifndef KJIT_NATIVE_CALL_H
#define KJIT_NATIVE_CALL_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

/* The type Call, a new reference: see call_new() in call.c. NULL with an exception set. */
PyObject *call_type(void);

/* launch(calls, head, tensors, values): run the Call that the dict has under the signature of `head` and the tensors,
 * with these numbers. The tensor or the tensors of the result; None: the call is left to Python. */
PyObject *call_launch(PyObject *module, PyObject *args);

#endif
