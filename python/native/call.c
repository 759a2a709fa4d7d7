/* A prepared call: a function of the library whose arguments are ready but for the addresses of tensors and the stream.
 *
 * run(tensors) asks for the stream, writes the tensors' addresses into the memory that the arguments point to, and
 * calls. It returns the function's kjit_status; the caller, who owns the memory and the kjit_error, says what is wrong.
 *
 * Threads: the memory belongs to one thread, because it is written for each call, and so does the object. The
 * interpreter lock is given up while the library works, because that may be a compile. */
#include "call.h"

#include "tensors.h"

#include <kjit/common.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Most pointers in front of the stream: runtime, kernel and arguments. */
enum { POINTERS_MAX = 3 };

typedef kjit_status after_one(void *, void *, void *);
typedef kjit_status after_two(void *, void *, void *, void *);
typedef kjit_status after_three(void *, void *, void *, void *, void *);

typedef struct {
  PyObject ob_base;                    /* PyObject_HEAD, which is no declaration to a formatter */
  PyObject *stream_of, *device, *kept; /* the function of the current stream and its argument; what must live */
  uintptr_t function;
  void *pointers[POINTERS_MAX], *error;
  int pointer_count;
  Py_ssize_t count;
  uint64_t *places;
} Call;

static kjit_status launch(const Call *self, void *stream) {
  void *const *const p = self->pointers;
  if (self->pointer_count == 1) return ((after_one *)self->function)(p[0], stream, self->error);
  if (self->pointer_count == 2) return ((after_two *)self->function)(p[0], p[1], stream, self->error);
  return ((after_three *)self->function)(p[0], p[1], p[2], stream, self->error);
}

static bool to_stream(PyObject *number, void **out) {
  *out = (void *)(uintptr_t)PyLong_AsUnsignedLongLongMask(number);
  return !PyErr_Occurred();
}

static bool current_stream(const Call *self, void **out) {
  *out = NULL;
  if (self->stream_of == Py_None) return true;
  PyObject *const number = PyObject_CallFunctionObjArgs(self->stream_of, self->device, NULL);
  if (!number) return false;
  const bool known = to_stream(number, out);
  Py_DECREF(number);
  return known;
}

static PyObject *finish(const Call *self, void *stream) {
  PyThreadState *const thread = PyEval_SaveThread();
  const kjit_status status = launch(self, stream);
  PyEval_RestoreThread(thread);
  return PyLong_FromLong((long)status);
}

static PyObject *call_run(PyObject *object, PyObject *tensors) {
  const Call *const self = (const Call *)object;
  void *stream = NULL;
  /* The stream comes first: no other code runs between the writing of the addresses and the call. */
  if (!current_stream(self, &stream) || !tensors_write(self->places, self->count, tensors)) return NULL;
  return finish(self, stream);
}

static PyObject *call_on(PyObject *object, PyObject *number) {
  const Call *const self = (const Call *)object;
  void *stream = NULL;
  if (number == Py_None ? !current_stream(self, &stream) : !to_stream(number, &stream)) return NULL;
  return finish(self, stream);
}

static bool take_pointers(Call *self, PyObject *pointers) {
  const Py_ssize_t count = PyTuple_Size(pointers);
  if (count < 1 || count > POINTERS_MAX) {
    PyErr_Format(PyExc_ValueError, "a call has 1 to %d pointers in front of its stream, not %zd", POINTERS_MAX, count);
    return false;
  }
  self->pointer_count = (int)count;
  for (Py_ssize_t i = 0; i < count; i++)
    self->pointers[i] = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GetItem(pointers, i));
  return !PyErr_Occurred();
}

static bool take_places(Call *self, PyObject *places) {
  self->count = PyTuple_Size(places);
  self->places = PyMem_Calloc((size_t)self->count + 1, sizeof *self->places);
  if (!self->places) return PyErr_NoMemory() != NULL;
  for (Py_ssize_t i = 0; i < self->count; i++)
    self->places[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(places, i));
  return !PyErr_Occurred();
}

/* Call(function, pointers, places, stream_of, device, error, kept): the address of a function that takes `pointers`,
 * the stream and a kjit_error, whose address is `error` (0: none is wanted); for each tensor of run() the address that
 * its own is written to; the function that tells the stream of `device`, None: the stream is NULL. */
static PyObject *call_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  PyObject *pointers = NULL, *places = NULL, *stream_of = NULL, *device = NULL, *kept = NULL;
  unsigned long long function = 0, error = 0;
  (void)keywords;
  if (!PyArg_ParseTuple(args, "KO!O!OOKO", &function, &PyTuple_Type, &pointers, &PyTuple_Type, &places, &stream_of,
                        &device, &error, &kept))
    return NULL;
  Call *const self = (Call *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (!self) return NULL;
  self->function = (uintptr_t)function;
  self->error = (void *)(uintptr_t)error;
  Py_INCREF(self->stream_of = stream_of);
  Py_INCREF(self->device = device);
  Py_INCREF(self->kept = kept);
  if (take_pointers(self, pointers) && take_places(self, places)) return (PyObject *)self;
  Py_DECREF(self);
  return NULL;
}

static int call_traverse(PyObject *object, visitproc visit, void *arg) {
  const Call *const self = (const Call *)object;
  Py_VISIT(Py_TYPE(object)); /* from 3.9 on an object holds its type */
  Py_VISIT(self->stream_of);
  Py_VISIT(self->device);
  Py_VISIT(self->kept);
  return 0;
}

static int call_clear(PyObject *object) {
  Call *const self = (Call *)object;
  Py_CLEAR(self->stream_of);
  Py_CLEAR(self->device);
  Py_CLEAR(self->kept);
  return 0;
}

static void call_dealloc(PyObject *object) {
  PyTypeObject *const type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  (void)call_clear(object);
  PyMem_Free(((Call *)object)->places);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyMethodDef call_methods[] = {
    {"run", call_run, METH_O, "run(tensors): on the current stream, with the addresses of these; the status"},
    {"on", call_on, METH_O, "on(stream): with the addresses that were written last, on a stream or None; the status"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot call_slots[] = {
    {Py_tp_doc, "A call of the library that is ready but for the addresses of tensors and the stream."},
    {Py_tp_methods, call_methods},
    {Py_tp_new, (void *)call_new},
    {Py_tp_traverse, (void *)call_traverse},
    {Py_tp_clear, (void *)call_clear},
    {Py_tp_dealloc, (void *)call_dealloc},
    {0, NULL},
};

static PyType_Spec call_spec = {"kjit._native.Call", (int)sizeof(Call), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                call_slots};

PyObject *call_type(void) {
  return PyType_FromSpec(&call_spec);
}
