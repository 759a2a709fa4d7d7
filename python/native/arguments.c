/* The arguments of a launch, one after the other: numbers by their size, bytes as they are, arrays by their address.
 * Whatever does not fit is left to Python, which says why. Only the interpreter lock guards what is here. */
#include "arguments.h"

#include <math.h>
#include <string.h>

struct readers readers;

static PyObject *name_data_ptr, *name_get_device, *name_data, *name_ptr, *name_device_id, *name_interface, *name_stream;
static PyObject *name_tobytes, *name_kjit_bytes;

/* A failed conversion is Python's to explain: forget the exception and leave the call. An interrupt is kept. */
static enum step leave(void) {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return STEP_RAISED;
  PyErr_Clear();
  return STEP_LEAVE;
}

static enum step put_integer(unsigned char *to, uint32_t size, PyObject *value) {
  const long long number = PyLong_AsLongLong(value);
  if (number == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    const unsigned long long large = PyLong_AsUnsignedLongLong(value);
    if (size != 8 || (large == (unsigned long long)-1 && PyErr_Occurred())) return leave();
    memcpy(to, &large, sizeof large);
    return STEP_DONE;
  }
  if (size != 1 && size != 2 && size != 4 && size != 8) return STEP_LEAVE;
  if (size < 8 && (number < -(1LL << (8 * size - 1)) || number >= 1LL << (8 * size))) return STEP_LEAVE;
  memcpy(to, &number, size); /* kjit runs on little-endian machines alone, as CUDA does */
  return STEP_DONE;
}

static enum step put_float(unsigned char *to, uint32_t size, PyObject *value) {
  const double number = PyFloat_AsDouble(value);
  const float narrow = (float)number;
  if (size == sizeof number) {
    memcpy(to, &number, sizeof number);
    return STEP_DONE;
  }
  if (size != sizeof narrow || (isinf(narrow) && !isinf(number))) return STEP_LEAVE;
  memcpy(to, &narrow, sizeof narrow);
  return STEP_DONE;
}

/* Bytes that Python made of a value, whose reference is taken over; NULL with an exception is left. */
static enum step put_bytes(unsigned char *to, uint32_t size, PyObject *content) {
  char *bytes = NULL;
  Py_ssize_t length = 0;
  enum step step = STEP_LEAVE;
  if (!content) return leave();
  if (PyBytes_Check(content) && PyBytes_AsStringAndSize(content, &bytes, &length) == 0 && length == (Py_ssize_t)size) {
    memcpy(to, bytes, size);
    step = STEP_DONE;
  }
  Py_DECREF(content);
  return step;
}

/* A number that an attribute or a method of an array gave, whose reference is taken over. */
static bool take_number(PyObject *number, unsigned long long *out) {
  if (!number) return false;
  *out = PyLong_AsUnsignedLongLongMask(number);
  Py_DECREF(number);
  return !PyErr_Occurred();
}

static bool look_at_torch(PyObject *array, unsigned long long *address, unsigned long long *device) {
  return take_number(PyObject_CallMethodObjArgs(array, name_data_ptr, NULL), address) &&
         take_number(PyObject_CallMethodObjArgs(array, name_get_device, NULL), device);
}

static bool look_at_cupy(PyObject *array, unsigned long long *address, unsigned long long *device) {
  PyObject *const data = PyObject_GetAttr(array, name_data);
  const bool known = data && take_number(PyObject_GetAttr(data, name_ptr), address) &&
                     take_number(PyObject_GetAttr(data, name_device_id), device);
  Py_XDECREF(data);
  return known;
}

static bool look_at_interface(PyObject *array, unsigned long long *address, unsigned long long *device) {
  PyObject *const facts = PyObject_GetAttr(array, name_interface);
  PyObject *const pair = facts ? PyObject_GetItem(facts, name_data) : NULL;
  const bool known = pair && take_number(PySequence_GetItem(pair, 0), address);
  *device = (unsigned long long)UNKNOWN_DEVICE;
  Py_XDECREF(pair);
  Py_XDECREF(facts);
  return known;
}

static enum step put_array(struct call *call, uint32_t size, PyObject *array, enum kind kind) {
  unsigned long long address = 0, number = 0;
  const bool known = kind == KIND_TORCH  ? look_at_torch(array, &address, &number)
                     : kind == KIND_CUPY ? look_at_cupy(array, &address, &number)
                                         : look_at_interface(array, &address, &number);
  const long device = (long)number;
  if (!known) return leave();
  if (size != sizeof address || (device < 0 && kind != KIND_INTERFACE)) return STEP_LEAVE;
  if (device >= 0 && call->device >= 0 && device != call->device) return STEP_LEAVE;
  if (device >= 0) call->device = device;
  if (!call->first) {
    call->first = array;
    call->first_kind = kind;
  }
  memcpy(call->next, &address, sizeof address);
  return STEP_DONE;
}

/* The kind of a value's type, by the table that kind_of() fills. */
static bool find_kind(PyObject *value, enum kind *out) {
  PyObject *const known = PyDict_GetItemWithError(readers.kinds, (PyObject *)Py_TYPE(value));
  unsigned long long number = 0;
  if (!known && PyErr_Occurred()) return false;
  PyObject *const found = known ? known : PyObject_CallFunctionObjArgs(readers.kind_of, value, NULL);
  if (!found) return false;
  if (known) Py_INCREF(known);
  if (!take_number(found, &number)) return false;
  *out = (enum kind)number;
  return true;
}

static enum step put_other(struct call *call, uint32_t size, PyObject *value) {
  enum kind kind = KIND_OTHER;
  if (!find_kind(value, &kind)) return leave();
  switch (kind) {
  case KIND_TORCH:
  case KIND_CUPY:
  case KIND_INTERFACE:
    return put_array(call, size, value, kind);
  case KIND_TOBYTES:
    return put_bytes(call->next, size, PyObject_CallMethodObjArgs(value, name_tobytes, NULL));
  case KIND_KJIT_BYTES:
    return put_bytes(call->next, size, PyObject_CallMethodObjArgs(value, name_kjit_bytes, NULL));
  case KIND_BUFFER:
    return put_bytes(call->next, size, PyBytes_FromObject(value));
  default:
    return STEP_LEAVE;
  }
}

static enum step put(struct call *call, uint32_t size, PyObject *value) {
  if (PyLong_CheckExact(value) || PyBool_Check(value)) return put_integer(call->next, size, value);
  if (PyFloat_CheckExact(value)) return put_float(call->next, size, value);
  if (value != Py_None) return put_other(call, size, value);
  if (size != sizeof(void *)) return STEP_LEAVE;
  memset(call->next, 0, sizeof(void *));
  return STEP_DONE;
}

enum step arguments_put(struct call *call, PyObject *args, Py_ssize_t count, const uint32_t *sizes) {
  for (Py_ssize_t i = 0; i < count; i++) {
    const enum step step = put(call, sizes[i], PyTuple_GetItem(args, i));
    if (step != STEP_DONE) return step;
    call->args[i] = (kjit_arg){call->next, sizes[i]};
    call->next += padded(sizes[i]);
  }
  return STEP_DONE;
}

enum step arguments_stream(const struct call *call, CUstream *out) {
  unsigned long long number = 0;
  PyObject *found = NULL;
  *out = NULL;
  if (!call->first) return STEP_DONE;
  if (call->first_kind == KIND_TORCH) {
    found = PyObject_CallFunction(readers.torch_stream, "l", call->device);
  } else if (call->first_kind == KIND_CUPY) {
    found = PyObject_CallFunctionObjArgs(readers.cupy_stream, NULL);
  } else {
    PyObject *const facts = PyObject_GetAttr(call->first, name_interface);
    PyObject *const named = facts && PyDict_Check(facts) ? PyDict_GetItemWithError(facts, name_stream) : NULL;
    found = !facts || !PyDict_Check(facts) || PyErr_Occurred() ? NULL
            : named && named != Py_None                        ? PyNumber_Long(named)
                                                               : PyLong_FromLong(0);
    Py_XDECREF(facts);
  }
  if (!take_number(found, &number)) return leave();
  *out = (CUstream)(uintptr_t)number;
  return STEP_DONE;
}

enum step arguments_given_stream(PyObject *stream, CUstream *out) {
  unsigned long long number = 0;
  const bool is_number = PyLong_CheckExact(stream);
  if (is_number) Py_INCREF(stream);
  if (!take_number(is_number ? stream : PyObject_CallFunctionObjArgs(readers.stream_number, stream, NULL), &number))
    return leave();
  *out = (CUstream)(uintptr_t)number;
  return STEP_DONE;
}

bool arguments_start(void) {
  const struct {
    PyObject **where;
    const char *text;
  } names[] = {
      {&name_data_ptr, "data_ptr"}, {&name_get_device, "get_device"}, {&name_data, "data"},
      {&name_ptr, "ptr"},           {&name_device_id, "device_id"},   {&name_interface, "__cuda_array_interface__"},
      {&name_stream, "stream"},     {&name_tobytes, "tobytes"},       {&name_kjit_bytes, "kjit_bytes"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    *names[i].where = PyUnicode_InternFromString(names[i].text);
    if (!*names[i].where) return false;
  }
  return true;
}
