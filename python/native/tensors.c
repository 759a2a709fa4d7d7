/* What a prepared call asks of a framework's tensors (_serving.py), by the attributes that PyTorch gives them. The
 * interpreter lock is held throughout. */
#include "tensors.h"

#include <stdint.h>
#include <string.h>

static PyObject *name_shape, *name_stride, *name_dtype, *name_device, *name_data_ptr;

bool tensors_start(void) {
  name_shape = PyUnicode_InternFromString("shape");
  name_stride = PyUnicode_InternFromString("stride");
  name_dtype = PyUnicode_InternFromString("dtype");
  name_device = PyUnicode_InternFromString("get_device");
  name_data_ptr = PyUnicode_InternFromString("data_ptr");
  return name_shape && name_stride && name_dtype && name_device && name_data_ptr;
}

/* How many objects a tensor's signature is, and of how many tensors, the first ones, the device is one more. */
enum { FACTS = 3, WITH_DEVICE = 3 };

/* Put a new reference, or NULL with an exception, at its place in a tuple that is being made. */
static bool put(PyObject *tuple, Py_ssize_t *at, PyObject *object) {
  return object && PyTuple_SetItem(tuple, (*at)++, object) == 0;
}

static bool put_facts(PyObject *tuple, Py_ssize_t *at, PyObject *tensor) {
  return put(tuple, at, PyObject_GetAttr(tensor, name_shape)) &&
         put(tuple, at, PyObject_CallMethodObjArgs(tensor, name_stride, NULL)) &&
         put(tuple, at, PyObject_GetAttr(tensor, name_dtype));
}

PyObject *tensors_signature(PyObject *module, PyObject *args) {
  PyObject *head = NULL, *tensors = NULL;
  (void)module;
  if (!PyArg_ParseTuple(args, "OO!", &head, &PyTuple_Type, &tensors)) return NULL;
  const Py_ssize_t count = PyTuple_Size(tensors);
  Py_ssize_t length = 1, at = 1;
  for (Py_ssize_t i = 0; i < count; i++)
    length += PyTuple_GetItem(tensors, i) == Py_None ? 1 : i < WITH_DEVICE ? FACTS + 1 : FACTS;
  PyObject *const tuple = PyTuple_New(length);
  if (!tuple) return NULL;
  Py_INCREF(head);
  bool made = PyTuple_SetItem(tuple, 0, head) == 0;
  for (Py_ssize_t i = 0; made && i < count; i++) {
    PyObject *const tensor = PyTuple_GetItem(tensors, i); /* borrowed */
    if (tensor == Py_None) Py_INCREF(tensor);
    made = tensor == Py_None ? put(tuple, &at, tensor) : put_facts(tuple, &at, tensor);
    if (made && tensor != Py_None && i < WITH_DEVICE)
      made = put(tuple, &at, PyObject_CallMethodObjArgs(tensor, name_device, NULL));
  }
  if (made) return tuple;
  Py_DECREF(tuple);
  return NULL;
}

/* Write the address that an object's data_ptr() tells to `place`. */
static bool write_address(unsigned long long place, PyObject *tensor) {
  PyObject *const number = PyObject_CallMethodObjArgs(tensor, name_data_ptr, NULL);
  if (!number) return false;
  const uint64_t address = PyLong_AsUnsignedLongLong(number);
  Py_DECREF(number);
  if (PyErr_Occurred()) return false;
  memcpy((void *)(uintptr_t)place, &address, sizeof address);
  return true;
}

PyObject *tensors_write_addresses(PyObject *module, PyObject *args) {
  PyObject *places = NULL, *tensors = NULL;
  (void)module;
  if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &places, &PyTuple_Type, &tensors)) return NULL;
  const Py_ssize_t count = PyTuple_Size(places);
  if (PyTuple_Size(tensors) != count) {
    PyErr_SetString(PyExc_ValueError, "places and tensors must be of one length");
    return NULL;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    const unsigned long long place = PyLong_AsUnsignedLongLong(PyTuple_GetItem(places, i));
    if (PyErr_Occurred()) return NULL;
    if (place && !write_address(place, PyTuple_GetItem(tensors, i))) return NULL;
  }
  Py_RETURN_NONE;
}
