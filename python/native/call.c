/* A prepared call: a function of the library whose arguments are ready but for the addresses of tensors, some numbers
 * and the stream.
 *
 * launch(calls, head, tensors, values) is a whole call from Python, of which each tensor is read once:
 * 1. the tensors' signature finds the Call in a dict;
 * 2. the tensors of the result are made, by the functions that the Call has for it;
 * 3. the current stream is asked for;
 * 4. numbers and addresses are written into the memory that the arguments point to;
 * 5. the library's function is called.
 * What it does not do is left to Python (_prepared.py), which does the same in more steps: a signature that is not
 * known, a result on another device, a number that needs a sentence. run(tensors) is steps 3 to 5 for tensors that are
 * there.
 *
 * Threads: the memory belongs to one thread, because it is written for each call, and so does the object; one without
 * tensors and numbers, as of a plan, any thread may start. The interpreter lock is given up while the library works,
 * because that may be a compile. */
#include "call.h"

#include "tensors.h"

#include <kjit/common.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

/* Most pointers in front of the stream: runtime, kernel and arguments; most tensors that a call makes: output and
 * log-sum-exp; and the tensors whose addresses are kept from the reading of their signature. */
enum { POINTERS_MAX = 3, MADE_MAX = 2, TENSORS_MAX = 64 };

typedef kjit_status after_one(void *, void *, void *);
typedef kjit_status after_two(void *, void *, void *, void *);
typedef kjit_status after_three(void *, void *, void *, void *, void *);

typedef struct {
  PyObject ob_base;                    /* PyObject_HEAD, which is no declaration to a formatter */
  PyObject *stream_of, *device, *kept; /* the function of the current stream and its argument; what must live */
  PyObject *makes;                     /* of each tensor that is made, the function and its arguments */
  PyObject *failed, *unless;           /* what a status is told to; what leaves a call to Python, or None */
  PyObject *kinds;                     /* of each number "i" or "f", in bytes; None: there are no numbers */
  void *numbers;
  long device_number;
  Py_ssize_t made, first; /* how many are made; which of those given is the first of the result, -1: none */
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

static kjit_status finish(const Call *self, void *stream) {
  PyThreadState *const thread = PyEval_SaveThread();
  const kjit_status status = launch(self, stream);
  PyEval_RestoreThread(thread);
  return status;
}

static PyObject *call_run(PyObject *object, PyObject *tensors) {
  const Call *const self = (const Call *)object;
  void *stream = NULL;
  /* The stream comes first: no other code runs between the writing of the addresses and the call. */
  if (!current_stream(self, &stream) || !tensors_write(self->places, self->count, tensors)) return NULL;
  return PyLong_FromLong((long)finish(self, stream));
}

static PyObject *call_on(PyObject *object, PyObject *number) {
  const Call *const self = (const Call *)object;
  void *stream = NULL;
  if (number == Py_None ? !current_stream(self, &stream) : !to_stream(number, &stream)) return NULL;
  return PyLong_FromLong((long)finish(self, stream));
}

/* Let Python raise what went wrong, or do it again. False with an exception set. */
static bool succeed(Call *self, kjit_status status, PyObject *stream) {
  if (status == KJIT_OK) return true;
  PyObject *const done = PyObject_CallFunctionObjArgs(self->failed, (PyObject *)self, stream, NULL);
  Py_XDECREF(done);
  return done != NULL;
}

static PyObject *call_start(PyObject *object, PyObject *args, PyObject *keywords) {
  static char stream_name[] = "stream", *names[] = {stream_name, NULL};
  Call *const self = (Call *)object;
  PyObject *number = Py_None;
  void *stream = NULL;
  if ((keywords || PyTuple_Size(args)) && !PyArg_ParseTupleAndKeywords(args, keywords, "|O", names, &number))
    return NULL;
  if (number == Py_None ? !current_stream(self, &stream) : !to_stream(number, &stream)) return NULL;
  if (!succeed(self, finish(self, stream), number)) return NULL;
  Py_RETURN_NONE;
}

/* ---- A call by its signature ---- */

/* The tensors that a call made, and where they are. */
struct made {
  PyObject *tensors[MADE_MAX];
  uint64_t addresses[MADE_MAX];
};

/* Make the result's tensors. *fit is false where one is on another device than the call's, which was not current. */
static bool make(const Call *self, struct made *made, bool *fit) {
  *fit = true;
  for (Py_ssize_t i = 0; i < self->made; i++) {
    PyObject *const how = PyTuple_GetItem(self->makes, i);
    long device = 0;
    made->tensors[i] = PyObject_CallObject(PyTuple_GetItem(how, 0), PyTuple_GetItem(how, 1));
    if (!made->tensors[i] || !tensors_place(made->tensors[i], made->addresses + i, &device)) return false;
    *fit = *fit && device == self->device_number;
  }
  return true;
}

/* Write one number. False: Python says what is wrong with it. */
static bool write_number(int32_t *to, char kind, PyObject *value) {
  if (kind == 'i' && PyLong_Check(value)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    *to = (int32_t)number;
    return !overflow && number >= INT32_MIN && number <= INT32_MAX;
  }
  if (kind != 'f' || !PyFloat_Check(value)) return false;
  const double number = PyFloat_AsDouble(value);
  const float narrow = (float)number;
  memcpy(to, &narrow, sizeof narrow);
  return !isinf(narrow) || isinf(number);
}

static bool write_numbers(const Call *self, PyObject *values) {
  const Py_ssize_t count = PyTuple_Size(values);
  const char *const kinds = self->kinds == Py_None ? "" : PyBytes_AsString(self->kinds);
  if (count != (self->kinds == Py_None ? 0 : PyBytes_Size(self->kinds))) return false;
  for (Py_ssize_t i = 0; i < count; i++)
    if (!write_number((int32_t *)self->numbers + i, kinds[i], PyTuple_GetItem(values, i))) return false;
  return true;
}

/* `addresses`: those of the tensors as they were read before; NULL: they were not. */
static bool write_addresses(const Call *self, PyObject *tensors, const uint64_t *addresses, const struct made *made) {
  const Py_ssize_t count = self->count - self->made;
  if (!addresses && !tensors_write(self->places, count, tensors)) return false;
  for (Py_ssize_t i = 0; addresses && i < count; i++)
    if (self->places[i] && addresses[i]) memcpy((void *)(uintptr_t)self->places[i], addresses + i, sizeof *addresses);
  for (Py_ssize_t i = 0; i < self->made; i++)
    memcpy((void *)(uintptr_t)self->places[count + i], made->addresses + i, sizeof *made->addresses);
  return true;
}

/* The first tensor of the result and those that were made: one alone, or a tuple. */
static PyObject *result_of(const Call *self, PyObject *tensors, const struct made *made) {
  PyObject *const first = self->first < 0 ? made->tensors[0] : PyTuple_GetItem(tensors, self->first);
  const Py_ssize_t count = self->made + (self->first < 0 ? 0 : 1);
  if (count == 2) return PyTuple_Pack(2, first, made->tensors[self->made - 1]);
  Py_XINCREF(first);
  return first;
}

/* Steps 2 to 5. None: the call is left to Python. */
static PyObject *run_found(Call *self, PyObject *tensors, const uint64_t *addresses, PyObject *values) {
  struct made made = {0};
  PyObject *result = NULL, *left = Py_None;
  void *stream = NULL;
  bool fit = false, done = false;
  if (self->unless != Py_None) {
    PyObject *const asked = PyObject_CallObject(self->unless, NULL);
    const int is_left = asked ? PyObject_IsTrue(asked) : -1;
    Py_XDECREF(asked);
    if (is_left != 0) left = is_left < 0 ? NULL : Py_True;
  }
  if (left == Py_None && make(self, &made, &fit) && fit && current_stream(self, &stream)) {
    /* From here to the call no other code runs, so that nobody writes to the same memory. */
    const bool written = write_numbers(self, values) && write_addresses(self, tensors, addresses, &made);
    done = written && succeed(self, finish(self, stream), Py_None);
    if (done) result = result_of(self, tensors, &made);
  }
  for (Py_ssize_t i = 0; i < self->made; i++)
    Py_XDECREF(made.tensors[i]);
  if (done || PyErr_Occurred()) return result;
  Py_RETURN_NONE;
}

static PyTypeObject *type_of_calls;

/* Step 1. */
PyObject *call_launch(PyObject *module, PyObject *args) {
  uint64_t addresses[TENSORS_MAX];
  bool are_known = false;
  (void)module;
  if (PyTuple_Size(args) != 4 || !PyDict_Check(PyTuple_GetItem(args, 0)) || !PyTuple_Check(PyTuple_GetItem(args, 2)) ||
      !PyTuple_Check(PyTuple_GetItem(args, 3)))
    return PyErr_Format(PyExc_TypeError, "launch() takes a dict, an object and two tuples");
  PyObject *const tensors = PyTuple_GetItem(args, 2);
  PyObject *const key = tensors_key(PyTuple_GetItem(args, 1), tensors, addresses, TENSORS_MAX, &are_known);
  PyObject *const found = key ? PyDict_GetItemWithError(PyTuple_GetItem(args, 0), key) : NULL; /* borrowed */
  Py_XDECREF(key);
  if (!found && PyErr_Occurred()) return NULL;
  Call *const call = (Call *)found;
  if (!found || Py_TYPE(found) != type_of_calls || call->count - call->made != PyTuple_Size(tensors)) Py_RETURN_NONE;
  Py_INCREF(found); /* the dict may be cleared meanwhile */
  PyObject *const result = run_found(call, tensors, are_known ? addresses : NULL, PyTuple_GetItem(args, 3));
  Py_DECREF(found);
  return result;
}

/* ---- Making one ---- */

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

/* The functions that make tensors, for which the last of the places are. */
static bool take_makes(Call *self, PyObject *makes) {
  self->made = PyTuple_Size(makes);
  if (self->made > MADE_MAX || self->made > self->count || self->first >= self->count - self->made) {
    PyErr_Format(PyExc_ValueError, "a call makes at most %d tensors, and has a place for each", MADE_MAX);
    return false;
  }
  for (Py_ssize_t i = 0; i < self->made; i++) {
    PyObject *const how = PyTuple_GetItem(makes, i);
    if (PyTuple_Check(how) && PyTuple_Size(how) == 2 && PyTuple_Check(PyTuple_GetItem(how, 1)) &&
        self->places[self->count - self->made + i])
      continue;
    PyErr_SetString(PyExc_TypeError, "what makes a tensor is a function and a tuple, and has a place");
    return false;
  }
  return self->made >= 0;
}

static bool take_numbers(Call *self, PyObject *kinds, unsigned long long address) {
  self->numbers = (void *)(uintptr_t)address;
  if (kinds == Py_None || (PyBytes_Check(kinds) && address)) return true;
  PyErr_SetString(PyExc_TypeError, "the kinds of numbers are bytes, and have an address");
  return false;
}

/* Call(function, pointers, places, stream_of, device, error, kept, makes, first, kinds, numbers, failed, unless): the
 * address of a function that takes `pointers`, the stream and a kjit_error, whose address is `error` (0: none is
 * wanted); for each tensor, those that are made last, the address that its own is written to (0: to none); the function
 * that tells the stream of `device`, None: the stream is NULL; for each tensor that is made, what makes it; which of
 * those given is the first of the result; the kinds of the numbers and the address where they are written; failed(call,
 * stream), which raises what went wrong; unless(), which leaves a launch() to Python where it is true. */
static PyObject *call_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  PyObject *pointers = NULL, *places = NULL, *stream_of = NULL, *device = NULL, *kept = NULL, *makes = NULL;
  PyObject *kinds = NULL, *failed = NULL, *unless = NULL;
  unsigned long long function = 0, error = 0, numbers = 0;
  Py_ssize_t first = 0;
  (void)keywords;
  if (!PyArg_ParseTuple(args, "KO!O!OO!KOO!nOKOO", &function, &PyTuple_Type, &pointers, &PyTuple_Type, &places,
                        &stream_of, &PyLong_Type, &device, &error, &kept, &PyTuple_Type, &makes, &first, &kinds,
                        &numbers, &failed, &unless))
    return NULL;
  Call *const self = (Call *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (!self) return NULL;
  self->function = (uintptr_t)function;
  self->error = (void *)(uintptr_t)error;
  self->first = first;
  self->device_number = PyLong_AsLong(device);
  Py_INCREF(self->stream_of = stream_of);
  Py_INCREF(self->device = device);
  Py_INCREF(self->kept = kept);
  Py_INCREF(self->makes = makes);
  Py_INCREF(self->kinds = kinds);
  Py_INCREF(self->failed = failed);
  Py_INCREF(self->unless = unless);
  if (!PyErr_Occurred() && take_pointers(self, pointers) && take_places(self, places) && take_makes(self, makes) &&
      take_numbers(self, kinds, numbers))
    return (PyObject *)self;
  Py_DECREF(self);
  return NULL;
}

static int call_traverse(PyObject *object, visitproc visit, void *arg) {
  const Call *const self = (const Call *)object;
  Py_VISIT(Py_TYPE(object)); /* from 3.9 on an object holds its type */
  Py_VISIT(self->stream_of);
  Py_VISIT(self->device);
  Py_VISIT(self->kept);
  Py_VISIT(self->makes);
  Py_VISIT(self->kinds);
  Py_VISIT(self->failed);
  Py_VISIT(self->unless);
  return 0;
}

static int call_clear(PyObject *object) {
  Call *const self = (Call *)object;
  Py_CLEAR(self->stream_of);
  Py_CLEAR(self->device);
  Py_CLEAR(self->kept);
  Py_CLEAR(self->makes);
  Py_CLEAR(self->kinds);
  Py_CLEAR(self->failed);
  Py_CLEAR(self->unless);
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
    {"start", (PyCFunction)(void (*)(void))call_start, METH_VARARGS | METH_KEYWORDS,
     "start(stream=None): launch on the current stream, or on the stream of this number"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef call_members[] = {
    {"kept", T_OBJECT_EX, offsetof(Call, kept), READONLY, "what lives as long as the call"},
    {"makes", T_OBJECT_EX, offsetof(Call, makes), READONLY, "what makes the result's tensors"},
    {"first", T_PYSSIZET, offsetof(Call, first), READONLY, "which of the tensors is the first of the result"},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot call_slots[] = {
    {Py_tp_doc, "A call of the library that is ready but for the addresses of tensors and the stream."},
    {Py_tp_methods, call_methods},
    {Py_tp_members, call_members},
    {Py_tp_new, (void *)call_new},
    {Py_tp_traverse, (void *)call_traverse},
    {Py_tp_clear, (void *)call_clear},
    {Py_tp_dealloc, (void *)call_dealloc},
    {0, NULL},
};

static PyType_Spec call_spec = {"kjit._native.Call", (int)sizeof(Call), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                call_slots};

PyObject *call_type(void) {
  PyObject *const type = PyType_FromSpec(&call_spec);
  type_of_calls = (PyTypeObject *)type;
  return type;
}
