/* kjit._native: what a launch from Python does, as an extension module of CPython's stable ABI, so that one build
 * serves every Python from 3.9 on.
 *
 * A Launcher is a kernel with grid, block, shared memory and stream. Calling it writes the arguments into memory on the
 * stack, in the sizes that the kernel's parameters have, and calls kjit_kernel_launch(). What it cannot do itself, and
 * every argument that is wrong, it leaves to Kernel._enqueue() of kernel.py, which does the same in Python for all
 * cases and knows the sentences of all errors; so the two cannot disagree about what is an error. Nothing is linked
 * with libkjit or libcuda: the addresses of their functions come from Python, which has opened both.
 *
 * Threads: a Launcher is never changed after it was made. The interpreter lock is given up for the launch itself,
 * because the driver waits in it when a stream's queue is full. */
#include "arguments.h"
#include "call.h"
#include "dlpack.h"
#include "entries.h"
#include "recall.h"
#include "replay.h"
#include "tensors.h"
#include "walk.h"

#include <string.h>

/* Arguments and their values have room on the stack up to so many bytes: more than kernels that people write have. */
#define FRAME_ON_STACK 2048

typedef kjit_status launch_function(kjit_kernel *, const kjit_launch *, const kjit_arg *, size_t, CUstream,
                                    kjit_error *);
typedef int get_device_function(int *);

typedef struct {
  PyObject ob_base;                  /* PyObject_HEAD, which is no declaration to a formatter */
  PyObject *kernel, *shape, *stream; /* the arguments of Kernel._enqueue() */
  kjit_kernel *const *handle;        /* inside kernel; NULL there once it was released */
  launch_function *launch;
  get_device_function *get_device;
  kjit_launch how;
  CUstream own_stream; /* with has_stream: in place of the current stream of the first array's framework */
  bool has_stream;
  Py_ssize_t count;
  size_t frame_bytes;
  uint32_t *sizes;
} Launcher;

static PyObject *failed, *name_enqueue;

/* Launch in the current context, which must be of the arrays' device: Python makes it current where it is not. */
static enum step launch(const Launcher *self, const struct call *call, CUstream stream) {
  kjit_error error;
  int device = 0;
  if (self->get_device(&device) != 0 || (call->device >= 0 && device != call->device)) return STEP_LEAVE;
  PyThreadState *const thread = PyEval_SaveThread();
  const kjit_status status = self->launch(*self->handle, &self->how, call->args, (size_t)self->count, stream, &error);
  PyEval_RestoreThread(thread);
  if (status == KJIT_OK) return STEP_DONE;
  Py_XDECREF(PyObject_CallFunction(failed, "y#", (const char *)&error, (Py_ssize_t)sizeof error));
  return STEP_RAISED;
}

static enum step try_call(const Launcher *self, PyObject *stream, PyObject *args, unsigned char *frame) {
  struct call call = {.args = (kjit_arg *)(void *)frame, .device = UNKNOWN_DEVICE};
  CUstream where = self->own_stream;
  call.next = frame + padded((size_t)self->count * sizeof *call.args);
  enum step step = arguments_put(&call, args, self->count, self->sizes);
  if (step == STEP_DONE && stream != Py_None)
    step = arguments_given_stream(stream, &where);
  else if (step == STEP_DONE && !self->has_stream)
    step = arguments_stream(&call, &where);
  return step == STEP_DONE ? launch(self, &call, where) : step;
}

/* Launch on a stream, or on the launcher's own where that is None. */
static PyObject *call_on(const Launcher *self, PyObject *stream, PyObject *args) {
  _Alignas(VALUE_ALIGNMENT) unsigned char few[FRAME_ON_STACK];
  enum step step = STEP_LEAVE;
  if (PyTuple_Size(args) == self->count) {
    unsigned char *const frame = self->frame_bytes <= sizeof few ? few : PyMem_Malloc(self->frame_bytes);
    if (!frame) return PyErr_NoMemory();
    step = try_call(self, stream, args, frame);
    if (frame != few) PyMem_Free(frame);
  }
  if (step == STEP_RAISED) return NULL;
  if (step == STEP_LEAVE) {
    PyObject *const chosen = stream != Py_None ? stream : self->stream;
    return PyObject_CallMethodObjArgs(self->kernel, name_enqueue, self->shape, chosen, args, NULL);
  }
  Py_INCREF(Py_None);
  return Py_None;
}

static PyObject *launcher_call(PyObject *object, PyObject *args, PyObject *keywords) {
  if (keywords && PyDict_Size(keywords) > 0) {
    PyErr_SetString(PyExc_TypeError, "a launch takes no keyword arguments");
    return NULL;
  }
  return call_on((const Launcher *)object, Py_None, args);
}

static PyObject *launcher_on(PyObject *object, PyObject *args) {
  PyObject *stream = NULL, *values = NULL;
  if (!PyArg_ParseTuple(args, "OO!", &stream, &PyTuple_Type, &values)) return NULL;
  return call_on((const Launcher *)object, stream, values);
}

/* The sizes of the parameters, a tuple of numbers, and the frame that they need. */
static bool take_sizes(Launcher *self, PyObject *sizes) {
  self->count = PyTuple_Size(sizes);
  if (self->count < 0) return false;
  self->sizes = PyMem_Calloc((size_t)self->count + 1, sizeof *self->sizes);
  if (!self->sizes) return PyErr_NoMemory() != NULL;
  self->frame_bytes = padded((size_t)self->count * sizeof(kjit_arg));
  for (Py_ssize_t i = 0; i < self->count; i++) {
    self->sizes[i] = (uint32_t)PyLong_AsUnsignedLongMask(PyTuple_GetItem(sizes, i));
    self->frame_bytes += padded(self->sizes[i]);
  }
  return !PyErr_Occurred();
}

/* Launcher(kernel, handle, sizes, shape, launch struct's bytes, stream, stream's number, launch function, get_device).
 * handle is the address of the kernel's handle; the two functions are addresses too. */
static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  PyObject *kernel = NULL, *shape = NULL, *sizes = NULL, *stream = NULL, *number = NULL;
  unsigned long long handle = 0, launch_address = 0, device_address = 0;
  const char *how = NULL;
  Py_ssize_t how_bytes = 0;
  (void)keywords;
  if (!PyArg_ParseTuple(args, "OKO!Oy#OOKK", &kernel, &handle, &PyTuple_Type, &sizes, &shape, &how, &how_bytes, &stream,
                        &number, &launch_address, &device_address))
    return NULL;
  if (how_bytes != (Py_ssize_t)sizeof(kjit_launch))
    return PyErr_Format(PyExc_ValueError, "kjit_launch has %zd bytes: %zu expected", how_bytes, sizeof(kjit_launch));
  Launcher *const self = (Launcher *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (!self) return NULL;
  self->handle = (kjit_kernel *const *)(uintptr_t)handle;
  self->launch = (launch_function *)(uintptr_t)launch_address;
  self->get_device = (get_device_function *)(uintptr_t)device_address;
  memcpy(&self->how, how, sizeof self->how);
  self->has_stream = number != Py_None;
  self->own_stream = self->has_stream ? (CUstream)(uintptr_t)PyLong_AsUnsignedLongLongMask(number) : NULL;
  Py_INCREF(self->kernel = kernel);
  Py_INCREF(self->shape = shape);
  Py_INCREF(self->stream = stream);
  if (!PyErr_Occurred() && take_sizes(self, sizes)) return (PyObject *)self;
  Py_DECREF(self);
  return NULL;
}

static int launcher_traverse(PyObject *object, visitproc visit, void *arg) {
  const Launcher *const self = (const Launcher *)object;
  Py_VISIT(Py_TYPE(object)); /* from 3.9 on an object holds its type */
  Py_VISIT(self->kernel);
  Py_VISIT(self->shape);
  Py_VISIT(self->stream);
  return 0;
}

static int launcher_clear(PyObject *object) {
  Launcher *const self = (Launcher *)object;
  Py_CLEAR(self->kernel);
  Py_CLEAR(self->shape);
  Py_CLEAR(self->stream);
  return 0;
}

static void launcher_dealloc(PyObject *object) {
  PyTypeObject *const type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  (void)launcher_clear(object);
  PyMem_Free(((Launcher *)object)->sizes);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyMethodDef launcher_methods[] = {
    {"on", launcher_on, METH_VARARGS, "on(stream, args): launch with the arguments as one tuple, on a stream or None"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot launcher_slots[] = {
    {Py_tp_doc, "A kernel with grid, block, shared memory and stream: call it with the kernel's arguments."},
    {Py_tp_methods, launcher_methods},
    {Py_tp_new, (void *)launcher_new},
    {Py_tp_call, (void *)launcher_call},
    {Py_tp_traverse, (void *)launcher_traverse},
    {Py_tp_clear, (void *)launcher_clear},
    {Py_tp_dealloc, (void *)launcher_dealloc},
    {0, NULL},
};

static PyType_Spec launcher_spec = {"kjit._native.Launcher", (int)sizeof(Launcher), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, launcher_slots};

static void keep(PyObject **where, PyObject *object) {
  PyObject *const before = *where;
  Py_INCREF(object);
  *where = object;
  Py_XDECREF(before);
}

/* configure(kinds, kind_of, failed, stream_number): a dict from types to kinds, the function that fills it, the one
 * that raises what a kjit_error's bytes say, and the one that makes a number of a stream. */
static PyObject *configure(PyObject *module, PyObject *args) {
  PyObject *table = NULL, *function = NULL, *raise = NULL, *number = NULL;
  (void)module;
  if (!PyArg_ParseTuple(args, "O!OOO", &PyDict_Type, &table, &function, &raise, &number)) return NULL;
  keep(&readers.kinds, table);
  keep(&readers.kind_of, function);
  keep(&failed, raise);
  keep(&readers.stream_number, number);
  return PyLong_FromLong(0);
}

/* set_stream(kind, function): the function that returns a framework's current stream as a number. */
static PyObject *set_stream(PyObject *module, PyObject *args) {
  int kind = 0;
  PyObject *function = NULL;
  (void)module;
  if (!PyArg_ParseTuple(args, "iO", &kind, &function)) return NULL;
  keep(kind == KIND_TORCH ? &readers.torch_stream : &readers.cupy_stream, function);
  return PyLong_FromLong(0);
}

static PyMethodDef functions[] = {
    {"configure", configure, METH_VARARGS, "configure(kinds, kind_of, failed, stream_number)"},
    {"configure_requests", recall_configure, METH_VARARGS, "configure_requests(build, get_info, release, known)"},
    {"build", recall_build, METH_VARARGS, "build(runtime, request)"},
    {"signature", tensors_signature, METH_VARARGS, "signature(head, tensors)"},
    {"launch", call_launch, METH_VARARGS, "launch(calls, head, tensors, values)"},
    {"configure_tensors", dlpack_configure, METH_VARARGS, "configure_tensors(table, Tensor, Parameter)"},
    {"configure_walk", walk_configure, METH_VARARGS,
     "configure_walk(tables, functions, types and bounds of _recall.py)"},
    {"recall", entries_recall, METH_VARARGS,
     "recall(entries, functions): the entry of functions, or what they are told by"},
    {"configure_replay", replay_configure, METH_VARARGS, "configure_replay(operators, free_int, free_float, index)"},
    {"configure_mode", replay_configure_mode, METH_O, "configure_mode(getitem)"},
    {"set_stream", set_stream, METH_VARARGS, "set_stream(kind, function)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "kjit._native",
                                        .m_doc = "Launches, prepared calls and repeated requests, in C.",
                                        .m_size = -1,
                                        .m_methods = functions};

PyMODINIT_FUNC PyInit__native(void) {
  static const char *const kind_names[] = {"OTHER", "TORCH", "CUPY", "INTERFACE", "TOBYTES", "KJIT_BYTES", "BUFFER"};
  name_enqueue = PyUnicode_InternFromString("_enqueue");
  PyObject *const type =
      name_enqueue && arguments_start() && tensors_start() && walk_start() ? PyType_FromSpec(&launcher_spec) : NULL;
  PyObject *const module = type ? PyModule_Create(&definition) : NULL;
  PyObject *const call = module ? call_type() : NULL;
  bool made = call && replay_start(module) && PyModule_AddObject(module, "Launcher", type) == 0 &&
              PyModule_AddObject(module, "Call", call) == 0;
  for (int i = 0; made && i <= KIND_BUFFER; i++)
    made = PyModule_AddIntConstant(module, kind_names[i], i) == 0;
  if (made) return module;
  Py_XDECREF(module);
  return NULL;
}
