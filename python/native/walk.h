/* The walk through what a function can see, by which a trace of it is told (_recall.py). */
#ifndef KJIT_NATIVE_WALK_H
#define KJIT_NATIVE_WALK_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <stdbool.h>

/* The names of the attributes that are asked for. False with an exception set. */
bool walk_start(void);

/* configure_walk(outlines, constants, kinds, attributes, look, tell_other, CannotTell, FunctionType, MethodType, depth,
 * length): the tables of _recall.py, its functions for new functions and for what is not told here, its exception, two
 * types, and how deep and how long containers may be. */
PyObject *walk_configure(PyObject *module, PyObject *args);

/* walk(functions): _recall.walk_in_python(). */
PyObject *walk_functions(PyObject *module, PyObject *functions);

#endif
