/* Traced functions (_trace.py) whose steps are those of the last trace, in C.
 *
 * A tracer keeps the steps of its last trace, each a tuple: what it does, its two operands, what it gave. A function
 * that is traced again mostly takes the same steps, and what is left of one is to see that it is the same: its operands
 * are the same objects, or a plain number in the place of one, which is noted. That is done here, for the operators of
 * a Number and for the indices of tensors, which reach a Mode. Everything else is left to Python: the first other step,
 * and what is no operator. So the types here have no more than the members that a step is compared by, and Python's
 * classes (_replay.py) inherit them in front of the tracer's own.
 *
 * Threads: the interpreter lock is held throughout, and a tracer is used by one thread at a time. */
#include "replay.h"

#include <stdbool.h>
#include <stddef.h>
#include <structmember.h>

typedef struct {
  PyObject ob_base;                   /* PyObject_HEAD, which is no declaration to a formatter */
  PyObject *steps, *tensors, *values; /* lists: the last trace's steps; what this one has met */
  Py_ssize_t at;                      /* how many steps this one has taken */
} Trace;

typedef struct {
  PyObject ob_base;
  PyObject *tracer, *name;
} Number;

typedef struct {
  PyObject ob_base;
  PyObject *tracer;
} Mode;

/* The parts of a step. */
enum { DOES, FIRST, SECOND, GAVE, STEP_PARTS };

enum operator{ ADD, SUBTRACT, MULTIPLY, DIVIDE, FLOOR, MODULO, POWER, AND, OR, XOR, LEFT, RIGHT, COMPARE };
enum { OPERATORS = COMPARE + Py_GE + 1 };

/* Of each operator, forward and with the plain number first: what a step of it does, and the function that writes it.
 */
static struct { PyObject *does, *write; } operators[2][OPERATORS];

static PyTypeObject *type_of_traces, *type_of_numbers;
static PyObject *free_int, *free_float; /* what stands in a step in place of a plain number that may be another */
static PyObject *indexing, *getitem;    /* what a step of an index does; PyTorch's function that indexes */
static PyObject *name_go_on, *name_ndim;

/* The last trace's step that would be next, borrowed; NULL without an exception: there is none. */
static PyObject *next_step(PyObject *tracer) {
  const Trace *const trace = (const Trace *)tracer;
  if (!tracer || !PyObject_TypeCheck(tracer, type_of_traces)) return NULL;
  if (!trace->steps || !PyList_Check(trace->steps) || trace->at < 0 || trace->at >= PyList_Size(trace->steps))
    return NULL;
  PyObject *const step = PyList_GetItem(trace->steps, trace->at);
  return PyTuple_Check(step) && PyTuple_Size(step) == STEP_PARTS ? step : NULL;
}

/* Take it again. A new reference to what it gave. */
static PyObject *take(PyObject *tracer, PyObject *step) {
  PyObject *const result = PyTuple_GetItem(step, GAVE);
  ((Trace *)tracer)->at++;
  Py_INCREF(result);
  return result;
}

/* May a plain number be a scalar of the variant? As _is_free() of _trace.py. */
static bool is_free(PyObject *number) {
  int overflow = 0;
  const double value =
      PyFloat_CheckExact(number) ? PyFloat_AsDouble(number) : (double)PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow || value == -1 || value == 0 || value == 1 || value == 2) return false;
  return value >= -2147483648.0 && value < 2147483648.0;
}

/* Is `number` in the place of a scalar, whose part of the step is `known`? Then it is noted. -1: an exception. */
static int take_number(PyObject *tracer, PyObject *known, PyObject *number) {
  PyObject *const values = ((Trace *)tracer)->values;
  if (known != (PyLong_CheckExact(number) ? free_int : PyFloat_CheckExact(number) ? free_float : NULL)) return 0;
  if (!is_free(number) || !values || !PyList_Check(values)) return 0;
  return PyList_Append(values, number) < 0 ? -1 : 1;
}

/* An operator of a number and something else. */
static PyObject *operate(PyObject *self, PyObject *other, int reversed, int which) {
  PyObject *const tracer = ((Number *)self)->tracer, *const step = next_step(tracer);
  if (step && PyTuple_GetItem(step, DOES) == operators[reversed][which].does && PyTuple_GetItem(step, FIRST) == self) {
    PyObject *const known = PyTuple_GetItem(step, SECOND);
    const int same = known == other ? 1 : take_number(tracer, known, other);
    if (same) return same < 0 ? NULL : take(tracer, step);
  }
  PyObject *const write = operators[reversed][which].write;
  if (!write) return PyErr_Format(PyExc_RuntimeError, "configure_replay() was not called");
  return PyObject_CallFunctionObjArgs(write, self, other, NULL);
}

static PyObject *binary(PyObject *left, PyObject *right, enum operator which) {
  if (PyObject_TypeCheck(left, type_of_numbers)) return operate(left, right, 0, which);
  return operate(right, left, 1, which);
}

#define BINARY(name, which)                                                                                            \
  static PyObject *number_##name(PyObject *left, PyObject *right) {                                                    \
    return binary(left, right, which);                                                                                 \
  }
BINARY(add, ADD)
BINARY(subtract, SUBTRACT)
BINARY(multiply, MULTIPLY)
BINARY(divide, DIVIDE)
BINARY(floor, FLOOR)
BINARY(modulo, MODULO)
BINARY(and, AND)
BINARY(or, OR)
BINARY(xor, XOR)
BINARY(left, LEFT)
BINARY(right, RIGHT)
#undef BINARY

static PyObject *number_power(PyObject *left, PyObject *right, PyObject *modulus) {
  if (modulus == Py_None) return binary(left, right, POWER);
  Py_INCREF(Py_NotImplemented);
  return Py_NotImplemented;
}

static PyObject *number_compare(PyObject *left, PyObject *right, int which) {
  return operate(left, right, 0, COMPARE + which);
}

/* ---- Indices of tensors ---- */

/* Is this the tensor of that number? One that the trace has not met becomes it. -1: an exception. */
static int is_tensor(PyObject *tensors, PyObject *number, PyObject *tensor) {
  const Py_ssize_t at = PyLong_AsSsize_t(number);
  if (at < 0 || !tensors || !PyList_Check(tensors)) return PyErr_Occurred() ? -1 : 0;
  const Py_ssize_t count = PyList_Size(tensors);
  if (at < count) return PyList_GetItem(tensors, at) == tensor;
  for (Py_ssize_t i = 0; i < count; i++)
    if (PyList_GetItem(tensors, i) == tensor) return 0;
  if (at > count) return 0;
  return PyList_Append(tensors, tensor) < 0 ? -1 : 1;
}

/* How many axes it has; -1 where it does not say. A class of the user's may run code of its own for that. */
static Py_ssize_t rank_of(PyObject *tensor) {
  PyObject *const found = PyObject_GetAttr(tensor, name_ndim);
  const Py_ssize_t rank = found && PyLong_Check(found) ? PyLong_AsSsize_t(found) : -1;
  Py_XDECREF(found);
  if (rank < 0) PyErr_Clear();
  return rank;
}

/* Are these the indices of a step? */
static bool are_indices(PyObject *index, PyObject *known) {
  if (!PyTuple_Check(known)) return false;
  const Py_ssize_t count = PyTuple_Size(known);
  if (!PyTuple_Check(index)) return count == 1 && PyTuple_GetItem(known, 0) == index;
  if (PyTuple_Size(index) != count) return false;
  for (Py_ssize_t i = 0; i < count; i++)
    if (PyTuple_GetItem(index, i) != PyTuple_GetItem(known, i)) return false;
  return true;
}

/* The result of tensor[index] if it is the last trace's next step; NULL without an exception: it is another one. The
 * step is looked at when the rank is known: whatever told that may have taken steps, or forgotten this one. */
static PyObject *index_again(PyObject *tracer, PyObject *arguments) {
  if (!PyTuple_Check(arguments) || PyTuple_Size(arguments) != 2) return NULL;
  PyObject *const tensor = PyTuple_GetItem(arguments, 0);
  const Py_ssize_t rank = rank_of(tensor);
  PyObject *const step = next_step(tracer);
  if (!step || PyTuple_GetItem(step, DOES) != indexing) return NULL;
  PyObject *const known = PyTuple_GetItem(step, SECOND);
  if (!are_indices(PyTuple_GetItem(arguments, 1), known) || rank != PyTuple_Size(known)) return NULL;
  const int same = is_tensor(((Trace *)tracer)->tensors, PyTuple_GetItem(step, FIRST), tensor);
  return same > 0 ? take(tracer, step) : NULL;
}

/* __torch_function__(function, types, arguments, named): what PyTorch was asked for while the mode is on. */
static PyObject *mode_function(PyObject *object, PyObject *args) {
  if (PyTuple_Size(args) >= 3 && PyTuple_GetItem(args, 0) == getitem) {
    PyObject *const result = index_again(((Mode *)object)->tracer, PyTuple_GetItem(args, 2));
    if (result || PyErr_Occurred()) return result;
  }
  PyObject *const go_on = PyObject_GetAttr(object, name_go_on);
  PyObject *const result = go_on ? PyObject_CallObject(go_on, args) : NULL;
  Py_XDECREF(go_on);
  return result;
}

/* ---- The types ---- */

static int trace_traverse(PyObject *object, visitproc visit, void *arg) {
  const Trace *const self = (const Trace *)object;
  Py_VISIT(Py_TYPE(object)); /* from 3.9 on an object holds its type */
  Py_VISIT(self->steps);
  Py_VISIT(self->tensors);
  Py_VISIT(self->values);
  return 0;
}

static int trace_clear(PyObject *object) {
  Trace *const self = (Trace *)object;
  Py_CLEAR(self->steps);
  Py_CLEAR(self->tensors);
  Py_CLEAR(self->values);
  return 0;
}

static int number_traverse(PyObject *object, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(((Number *)object)->tracer);
  Py_VISIT(((Number *)object)->name);
  return 0;
}

static int number_clear(PyObject *object) {
  Py_CLEAR(((Number *)object)->tracer);
  Py_CLEAR(((Number *)object)->name);
  return 0;
}

static int mode_traverse(PyObject *object, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(((Mode *)object)->tracer);
  return 0;
}

static int mode_clear(PyObject *object) {
  Py_CLEAR(((Mode *)object)->tracer);
  return 0;
}

static void end(PyObject *object, inquiry clear) {
  PyTypeObject *const type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  (void)clear(object);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static void trace_dealloc(PyObject *object) {
  end(object, trace_clear);
}
static void number_dealloc(PyObject *object) {
  end(object, number_clear);
}
static void mode_dealloc(PyObject *object) {
  end(object, mode_clear);
}

static PyMemberDef trace_members[] = {
    {"steps", T_OBJECT_EX, offsetof(Trace, steps), 0, "the steps of the last trace"},
    {"tensors", T_OBJECT_EX, offsetof(Trace, tensors), 0, "the tensors that were met"},
    {"values", T_OBJECT_EX, offsetof(Trace, values), 0, "the numbers that were met"},
    {"at", T_PYSSIZET, offsetof(Trace, at), 0, "how many steps were taken"},
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef number_members[] = {
    {"tracer", T_OBJECT_EX, offsetof(Number, tracer), 0, "its trace"},
    {"name", T_OBJECT_EX, offsetof(Number, name), 0, "its name in the text"},
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef mode_members[] = {
    {"tracer", T_OBJECT_EX, offsetof(Mode, tracer), 0, "its trace"},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef mode_methods[] = {
    {"__torch_function__", mode_function, METH_VARARGS, "__torch_function__(function, types, arguments, named)"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot trace_slots[] = {
    {Py_tp_doc, "The steps of a trace."},     {Py_tp_members, trace_members},
    {Py_tp_traverse, (void *)trace_traverse}, {Py_tp_clear, (void *)trace_clear},
    {Py_tp_dealloc, (void *)trace_dealloc},   {0, NULL},
};

static PyType_Slot number_slots[] = {
    {Py_tp_doc, "A traced number, with its operators."},
    {Py_tp_members, number_members},
    {Py_tp_traverse, (void *)number_traverse},
    {Py_tp_clear, (void *)number_clear},
    {Py_tp_dealloc, (void *)number_dealloc},
    {Py_tp_richcompare, (void *)number_compare},
    {Py_tp_hash, (void *)PyObject_HashNotImplemented},
    {Py_nb_add, (void *)number_add},
    {Py_nb_subtract, (void *)number_subtract},
    {Py_nb_multiply, (void *)number_multiply},
    {Py_nb_true_divide, (void *)number_divide},
    {Py_nb_floor_divide, (void *)number_floor},
    {Py_nb_remainder, (void *)number_modulo},
    {Py_nb_power, (void *)number_power},
    {Py_nb_and, (void *)number_and},
    {Py_nb_or, (void *)number_or},
    {Py_nb_xor, (void *)number_xor},
    {Py_nb_lshift, (void *)number_left},
    {Py_nb_rshift, (void *)number_right},
    {0, NULL},
};

static PyType_Slot mode_slots[] = {
    {Py_tp_doc, "What takes PyTorch's functions for a trace."},
    {Py_tp_methods, mode_methods},
    {Py_tp_members, mode_members},
    {Py_tp_traverse, (void *)mode_traverse},
    {Py_tp_clear, (void *)mode_clear},
    {Py_tp_dealloc, (void *)mode_dealloc},
    {0, NULL},
};

enum { TYPE_FLAGS = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE };

static PyType_Spec trace_spec = {"kjit._native.Trace", (int)sizeof(Trace), 0, TYPE_FLAGS, trace_slots};
static PyType_Spec number_spec = {"kjit._native.Number", (int)sizeof(Number), 0, TYPE_FLAGS, number_slots};
static PyType_Spec mode_spec = {"kjit._native.Mode", (int)sizeof(Mode), 0, TYPE_FLAGS, mode_slots};

static PyObject *added(PyObject *module, const char *name, PyType_Spec *spec) {
  PyObject *const type = PyType_FromSpec(spec);
  if (!type || PyModule_AddObject(module, name, type) < 0) return NULL;
  return type;
}

bool replay_start(PyObject *module) {
  name_go_on = PyUnicode_InternFromString("go_on");
  name_ndim = PyUnicode_InternFromString("ndim");
  type_of_traces = (PyTypeObject *)added(module, "Trace", &trace_spec);
  type_of_numbers = (PyTypeObject *)added(module, "Number", &number_spec);
  return name_go_on && name_ndim && type_of_traces && type_of_numbers && added(module, "Mode", &mode_spec);
}

/* A new reference in the place of an old one. */
static void keep(PyObject **where, PyObject *object) {
  PyObject *const before = *where;
  Py_INCREF(object);
  *where = object;
  Py_XDECREF(before);
}

PyObject *replay_configure(PyObject *module, PyObject *args) {
  PyObject *table = NULL, *of_int = NULL, *of_float = NULL, *index = NULL;
  (void)module;
  if (!PyArg_ParseTuple(args, "O!OOO", &PyTuple_Type, &table, &of_int, &of_float, &index)) return NULL;
  if (PyTuple_Size(table) != OPERATORS) return PyErr_Format(PyExc_ValueError, "there are %d operators", OPERATORS);
  for (Py_ssize_t i = 0; i < OPERATORS; i++) {
    PyObject *parts[4] = {NULL};
    if (!PyArg_ParseTuple(PyTuple_GetItem(table, i), "OOOO", parts, parts + 1, parts + 2, parts + 3)) return NULL;
    for (int reversed = 0; reversed < 2; reversed++) {
      keep(&operators[reversed][i].does, parts[2 * reversed]);
      keep(&operators[reversed][i].write, parts[2 * reversed + 1]);
    }
  }
  keep(&free_int, of_int);
  keep(&free_float, of_float);
  keep(&indexing, index);
  Py_RETURN_NONE;
}

PyObject *replay_configure_mode(PyObject *module, PyObject *function) {
  (void)module;
  keep(&getitem, function);
  Py_RETURN_NONE;
}
