/* What a prepared call (_prepared.py) asks of a framework's tensors: by DLPack's exchange table, and where that cannot
 * tell, by the attributes that PyTorch gives them. The interpreter lock is held throughout. */
#include "tensors.h"

#include "dlpack.h"

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

static uint64_t address_in(const struct dlpack_tensor *tensor) {
  return (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
}

/* How many objects a tensor's signature is where its attributes are asked for. */
enum { FACTS = 4 };

/* Words of a signature by the exchange table: two for each tensor, then shape and strides. Tensors of more axes, and
 * more tensors than fit, are asked for their attributes. */
enum { AXES_MAX = 8, WORDS_MAX = 256, HEAD_WORDS = 2 };
static const uint64_t no_tensor = UINT64_MAX;

/* Add a tensor's words, and note its address. False: it is left to its attributes. */
static bool add_words(uint64_t *words, Py_ssize_t room, Py_ssize_t *at, PyObject *object, uint64_t *address) {
  struct dlpack_tensor tensor;
  *address = 0;
  if (*at + HEAD_WORDS + 2 * AXES_MAX > room) return false;
  if (object == Py_None) {
    words[(*at)++] = no_tensor;
    return true;
  }
  if (!dlpack_read(object, &tensor) || tensor.ndim > AXES_MAX) return false;
  *address = address_in(&tensor);
  words[(*at)++] =
      (uint64_t)(uint32_t)tensor.ndim << 32 | (uint64_t)tensor.lanes << 16 | (uint64_t)tensor.bits << 8 | tensor.code;
  words[(*at)++] = (uint64_t)(uint32_t)tensor.device_type << 32 | (uint32_t)tensor.device_id;
  for (int32_t i = 0; i < tensor.ndim; i++)
    words[(*at)++] = (uint64_t)tensor.shape[i];
  for (int32_t i = 0; i < tensor.ndim; i++)
    words[(*at)++] = (uint64_t)tensor.strides[i];
  return true;
}

/* Put a new reference, or NULL with an exception, at its place in a tuple that is being made. */
static bool put(PyObject *tuple, Py_ssize_t *at, PyObject *object) {
  return object && PyTuple_SetItem(tuple, (*at)++, object) == 0;
}

static bool put_facts(PyObject *tuple, Py_ssize_t *at, PyObject *tensor) {
  return put(tuple, at, PyObject_GetAttr(tensor, name_shape)) &&
         put(tuple, at, PyObject_CallMethodObjArgs(tensor, name_stride, NULL)) &&
         put(tuple, at, PyObject_GetAttr(tensor, name_dtype)) &&
         put(tuple, at, PyObject_CallMethodObjArgs(tensor, name_device, NULL));
}

/* The signature by attributes: `head` and the facts of all tensors in one tuple. */
static PyObject *by_attributes(PyObject *head, PyObject *tensors) {
  const Py_ssize_t count = PyTuple_Size(tensors);
  Py_ssize_t length = 1, at = 1;
  for (Py_ssize_t i = 0; i < count; i++)
    length += PyTuple_GetItem(tensors, i) == Py_None ? 1 : FACTS;
  PyObject *const tuple = PyTuple_New(length);
  if (!tuple) return NULL;
  Py_INCREF(head);
  bool made = PyTuple_SetItem(tuple, 0, head) == 0;
  for (Py_ssize_t i = 0; made && i < count; i++) {
    PyObject *const tensor = PyTuple_GetItem(tensors, i); /* borrowed */
    if (tensor == Py_None) Py_INCREF(tensor);
    made = tensor == Py_None ? put(tuple, &at, tensor) : put_facts(tuple, &at, tensor);
  }
  if (made) return tuple;
  Py_DECREF(tuple);
  return NULL;
}

PyObject *tensors_key(PyObject *head, PyObject *tensors, uint64_t *addresses, Py_ssize_t room, bool *are_known) {
  uint64_t words[WORDS_MAX], address = 0;
  const Py_ssize_t count = PyTuple_Size(tensors);
  Py_ssize_t at = 0;
  *are_known = count <= room;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (!add_words(words, WORDS_MAX, &at, PyTuple_GetItem(tensors, i), i < room ? addresses + i : &address)) {
      *are_known = false;
      return by_attributes(head, tensors);
    }
  }
  PyObject *const bytes = PyBytes_FromStringAndSize((const char *)words, at * (Py_ssize_t)sizeof *words);
  PyObject *const pair = bytes ? PyTuple_Pack(2, head, bytes) : NULL;
  Py_XDECREF(bytes);
  return pair;
}

PyObject *tensors_facts(PyObject *tensor) {
  uint64_t words[HEAD_WORDS + 2 * AXES_MAX], address = 0;
  Py_ssize_t at = 0;
  if (!add_words(words, sizeof words / sizeof *words, &at, tensor, &address)) return NULL;
  return PyBytes_FromStringAndSize((const char *)words, at * (Py_ssize_t)sizeof *words);
}

PyObject *tensors_signature(PyObject *module, PyObject *args) {
  PyObject *head = NULL, *tensors = NULL;
  bool are_known = false;
  (void)module;
  if (!PyArg_ParseTuple(args, "OO!", &head, &PyTuple_Type, &tensors)) return NULL;
  return tensors_key(head, tensors, NULL, 0, &are_known);
}

static bool take_number(PyObject *number, long long *out) {
  if (!number) return false;
  *out = (long long)PyLong_AsUnsignedLongLongMask(number);
  Py_DECREF(number);
  return !PyErr_Occurred();
}

bool tensors_place(PyObject *tensor, uint64_t *address, long *device) {
  struct dlpack_tensor read;
  long long number = 0, where = 0;
  if (dlpack_read(tensor, &read)) {
    *address = address_in(&read);
    *device = read.device_type == DLPACK_CPU ? -1 : (long)read.device_id;
    return true;
  }
  if (!take_number(PyObject_CallMethodObjArgs(tensor, name_data_ptr, NULL), &number) ||
      !take_number(PyObject_CallMethodObjArgs(tensor, name_device, NULL), &where))
    return false;
  *address = (uint64_t)number;
  *device = (long)where;
  return true;
}

static bool address_of(PyObject *tensor, uint64_t *out) {
  struct dlpack_tensor read;
  long long number = 0;
  const bool is_read = dlpack_read(tensor, &read);
  if (!is_read && !take_number(PyObject_CallMethodObjArgs(tensor, name_data_ptr, NULL), &number)) return false;
  *out = is_read ? address_in(&read) : (uint64_t)number;
  return true;
}

bool tensors_write(const uint64_t *places, Py_ssize_t count, PyObject *tensors) {
  if (!PyTuple_Check(tensors) || PyTuple_Size(tensors) != count) {
    PyErr_Format(PyExc_ValueError, "the tensors of this call are a tuple of %zd", count);
    return false;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *const tensor = PyTuple_GetItem(tensors, i); /* borrowed */
    uint64_t address = 0;
    if (!places[i] || tensor == Py_None) continue;
    if (!address_of(tensor, &address)) return false;
    memcpy((void *)(uintptr_t)places[i], &address, sizeof address);
  }
  return true;
}
