/* Traces that are kept (_recall.py). */
#ifndef KJIT_NATIVE_ENTRIES_H
#define KJIT_NATIVE_ENTRIES_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

/* recall(entries, functions): _recall.recall_in_python(). */
PyObject *entries_recall(PyObject *module, PyObject *args);

#endif
