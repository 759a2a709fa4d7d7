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

/* The lists and the dict of a _recall.Walk. */
struct walk {
  PyObject *key, *tensors, *kept, *met, *alive;
};

/* Walk through a tuple of functions. False with an exception set; the caller finishes the walk in either case. */
bool walk_functions(PyObject *functions, struct walk *out);

/* Is the exception that of functions which may change without a sign? Then it is forgotten. */
bool walk_cannot_tell(void);

void walk_finish(struct walk *walk);

#endif
