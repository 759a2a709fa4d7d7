/* DLPack's exchange table of PyTorch: who has it reads a tensor in some nanoseconds, where the tensor's own methods
 * take a call and an object each. The layout is that of the public DLPack specification, version 1.
 *
 * Threads: the interpreter lock is held throughout; the table itself lives as long as the process. */
#include "dlpack.h"

typedef int read_function(void *object, struct dlpack_tensor *out);

/* DLPackExchangeAPI. The members before the one that is used here are never called. */
struct table {
  uint32_t major, minor;
  const struct table *older;
  void (*allocate)(void), (*share)(void), (*take)(void);
  read_function *read;
  void (*current_stream)(void);
};

enum { MAJOR_VERSION = 1 };

static read_function *read_tensor;
static PyObject *tensor_type, *parameter_type;

static void keep(PyObject **where, PyObject *object) {
  PyObject *const before = *where;
  Py_INCREF(object);
  *where = object;
  Py_XDECREF(before);
}

PyObject *dlpack_configure(PyObject *module, PyObject *args) {
  PyObject *capsule = NULL, *tensor = NULL, *parameter = NULL;
  (void)module;
  if (!PyArg_ParseTuple(args, "OOO", &capsule, &tensor, &parameter)) return NULL;
  const struct table *table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  if (!table) return NULL;
  while (table && table->major != MAJOR_VERSION)
    table = table->older;
  keep(&tensor_type, tensor);
  keep(&parameter_type, parameter);
  read_tensor = table ? table->read : NULL;
  return PyBool_FromLong(read_tensor != NULL);
}

bool dlpack_read(PyObject *object, struct dlpack_tensor *out) {
  const PyObject *const type = (const PyObject *)Py_TYPE(object);
  if (!read_tensor || (type != tensor_type && type != parameter_type)) return false;
  if (read_tensor(object, out) == 0) return out->strides != NULL || out->ndim == 0;
  PyErr_Clear(); /* the caller asks the object itself, which says what is wrong */
  return false;
}
