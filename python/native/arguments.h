/* A launch's arguments: Python's values written as a kernel's parameters, and what arrays say of device and stream. */
#ifndef KJIT_NATIVE_ARGUMENTS_H
#define KJIT_NATIVE_ARGUMENTS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <kjit/kernel.h>
#include <stdbool.h>
#include <stdint.h>

#define VALUE_ALIGNMENT 16
#define UNKNOWN_DEVICE  (-1)

/* How the values of a type are read: the numbers that kind_of() of kernel.py returns. */
enum kind { KIND_OTHER, KIND_TORCH, KIND_CUPY, KIND_INTERFACE, KIND_TOBYTES, KIND_KJIT_BYTES, KIND_BUFFER };

/* One call: the rows and values of its arguments, and what its arrays said. */
struct call {
  kjit_arg *args;
  unsigned char *next;
  PyObject *first; /* array, borrowed from the arguments; NULL: none yet */
  enum kind first_kind;
  long device;
};

/* What a step of a call found: go on, leave the call to Python, or an exception is set. */
enum step { STEP_DONE, STEP_LEAVE, STEP_RAISED };

/* The types that are known, the function that finds the kind of others, and the current streams of frameworks. */
struct readers {
  PyObject *kinds, *kind_of, *torch_stream, *cupy_stream, *stream_number;
};
extern struct readers readers;

/* Make the names of methods and attributes; false: an exception is set. */
bool arguments_start(void);

/* What a value takes in a frame. */
static inline size_t padded(size_t bytes) {
  return (bytes + VALUE_ALIGNMENT - 1) / VALUE_ALIGNMENT * VALUE_ALIGNMENT;
}

/* Write `count` arguments, of these sizes, at call->next on, and their rows. */
enum step arguments_put(struct call *call, PyObject *args, Py_ssize_t count, const uint32_t *sizes);

/* The stream on which the framework of the first array works now; NULL where there is no array. */
enum step arguments_stream(const struct call *call, CUstream *out);

/* A stream of any framework that the caller named. */
enum step arguments_given_stream(PyObject *stream, CUstream *out);

#endif
