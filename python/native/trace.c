/* Arithmetic and comparisons of the objects that stand for numbers while a score or mask function is traced: each
 * writes one `let` of the text. _trace.py has the same in Python, for operands that are neither such objects nor plain
 * numbers and where there is no part in C; both write the same text.
 *
 * Threads: a trace belongs to one thread. The interpreter lock is held throughout. */
#include "trace.h"

#include <stdint.h>
#include <structmember.h>

/* The base of _trace.Tracer: the lines that are written, how many of them have a name, and the scalars. */
typedef struct {
  PyObject ob_base; /* PyObject_HEAD, which is no declaration to a formatter */
  PyObject *lines, *values;
  Py_ssize_t count;
} Trace;

/* The base of _trace.Scalar: a name in the text of a trace. */
typedef struct {
  PyObject ob_base;
  Trace *tracer;
  PyObject *name;
} Number;

/* Names that most traces need; others are made each time. */
enum { NAMES = 64 };
static PyObject *names[NAMES];
static PyTypeObject *trace_type, *number_type;
static PyObject *operate;
static Py_ssize_t scalars_max;

static PyObject *allocate(PyTypeObject *type) {
  return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

static PyObject *name_of(Py_ssize_t number) {
  if (number >= NAMES) return PyUnicode_FromFormat("v%zd", number);
  if (!names[number]) names[number] = PyUnicode_FromFormat("v%zd", number);
  Py_XINCREF(names[number]);
  return names[number];
}

/* A new number of the type, whose line, a new reference or NULL, is written. */
static PyObject *write_line(Trace *tracer, PyTypeObject *type, PyObject *line) {
  PyObject *const name = line ? name_of(tracer->count) : NULL;
  Number *const made = name && PyList_Append(tracer->lines, line) == 0 ? (Number *)allocate(type) : NULL;
  Py_XDECREF(line);
  if (!made) {
    Py_XDECREF(name);
    return NULL;
  }
  tracer->count++;
  Py_INCREF(made->tracer = tracer);
  made->name = name;
  return (PyObject *)made;
}

/* The name of a plain number that becomes a scalar, a new reference; NULL without an exception: it does not. */
static PyObject *as_scalar(const Trace *tracer, PyObject *value) {
  const Py_ssize_t count = PyList_Size(tracer->values);
  const double number = PyLong_CheckExact(value) ? PyLong_AsDouble(value) : PyFloat_AsDouble(value);
  if (PyErr_Occurred()) { /* a number beyond all floats */
    PyErr_Clear();
    return NULL;
  }
  if (count >= scalars_max || number == -1 || number == 0 || number == 1 || number == 2) return NULL;
  if (!(number >= INT32_MIN && number < -(double)INT32_MIN)) return NULL;
  return PyList_Append(tracer->values, value) == 0 ? PyUnicode_FromFormat("n%zd", count) : NULL;
}

/* A plain number as an operand, a new reference; NULL without an exception: it is left to Python. */
static PyObject *operand_of(const Trace *tracer, PyObject *value, bool takes_scalars) {
  PyObject *const name = takes_scalars ? as_scalar(tracer, value) : NULL;
  if (name || PyErr_Occurred() || !PyLong_CheckExact(value)) return name;
  PyObject *const text = PyObject_Str(value);
  const bool is_negative = text && PyUnicode_ReadChar(text, 0) == '-';
  PyObject *const made = is_negative ? PyUnicode_FromFormat("(%U)", text) : text;
  if (is_negative) Py_DECREF(text);
  return made;
}

static PyObject *by_python(PyObject *a, PyObject *b, const char *sign) {
  return PyObject_CallFunction(operate, "sOO", sign, a, b);
}

static PyObject *binary(PyObject *a, PyObject *b, const char *sign, bool takes_scalars) {
  const bool is_forward = PyObject_TypeCheck(a, number_type);
  Number *const self = (Number *)(is_forward ? a : b);
  PyObject *const other = is_forward ? b : a;
  PyObject *name = NULL;
  if (Py_TYPE(other) == Py_TYPE(self)) {
    Py_INCREF(name = ((Number *)other)->name);
  } else if (PyLong_CheckExact(other) || PyFloat_CheckExact(other)) {
    name = operand_of(self->tracer, other, takes_scalars);
    if (!name && PyErr_Occurred()) return NULL;
  }
  if (!name) return by_python(a, b, sign);
  PyObject *const left = is_forward ? self->name : name, *const right = is_forward ? name : self->name;
  PyObject *const line = PyUnicode_FromFormat("let v%zd = %U %s %U; ", self->tracer->count, left, sign, right);
  Py_DECREF(name);
  return write_line(self->tracer, Py_TYPE(self), line);
}

#define OPERATION(function, sign, takes_scalars)                                                                       \
  static PyObject *function(PyObject *a, PyObject *b) {                                                                \
    return binary(a, b, sign, takes_scalars);                                                                          \
  }
OPERATION(add, "+", true)
OPERATION(subtract, "-", true)
OPERATION(multiply, "*", true)
OPERATION(divide, "/", true)
OPERATION(floor_divide, "//", false)
OPERATION(remainder_of, "%", false)
OPERATION(and_of, "&", false)
OPERATION(or_of, "|", false)
OPERATION(xor_of, "^", false)
OPERATION(shift_left, "<<", false)
OPERATION(shift_right, ">>", false)

static PyObject *power(PyObject *a, PyObject *b, PyObject *modulus) {
  if (modulus == Py_None) return binary(a, b, "**", false);
  Py_INCREF(Py_NotImplemented);
  return Py_NotImplemented;
}

static PyObject *compare(PyObject *a, PyObject *b, int how) {
  static const char *const signs[] = {
      [Py_LT] = "<", [Py_LE] = "<=", [Py_EQ] = "==", [Py_NE] = "!=", [Py_GT] = ">", [Py_GE] = ">="};
  return binary(a, b, signs[how], true);
}

/* Number(tracer, name). */
static PyObject *number_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  PyObject *tracer = NULL, *name = NULL;
  (void)keywords;
  if (!PyArg_ParseTuple(args, "O!U", trace_type, &tracer, &name)) return NULL;
  Number *const self = (Number *)allocate(type);
  if (!self) return NULL;
  Py_INCREF(tracer);
  self->tracer = (Trace *)tracer;
  Py_INCREF(self->name = name);
  return (PyObject *)self;
}

static int number_traverse(PyObject *object, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(object)); /* from 3.9 on an object holds its type */
  Py_VISIT((PyObject *)((const Number *)object)->tracer);
  return 0;
}

static int number_clear(PyObject *object) {
  Py_CLEAR(((Number *)object)->tracer);
  return 0;
}

static void release(PyObject *object) {
  PyTypeObject *const type = Py_TYPE(object);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static void number_dealloc(PyObject *object) {
  PyObject_GC_UnTrack(object);
  (void)number_clear(object);
  Py_CLEAR(((Number *)object)->name);
  release(object);
}

static PyObject *trace_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  Trace *const self = (Trace *)allocate(type);
  (void)args, (void)keywords;
  if (!self) return NULL;
  self->lines = PyList_New(0);
  self->values = PyList_New(0);
  if (self->lines && self->values) return (PyObject *)self;
  Py_DECREF(self);
  return NULL;
}

static int trace_traverse(PyObject *object, visitproc visit, void *arg) {
  const Trace *const self = (const Trace *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->lines);
  Py_VISIT(self->values);
  return 0;
}

static int trace_clear(PyObject *object) {
  Trace *const self = (Trace *)object;
  Py_CLEAR(self->lines);
  Py_CLEAR(self->values);
  return 0;
}

static void trace_dealloc(PyObject *object) {
  PyObject_GC_UnTrack(object);
  (void)trace_clear(object);
  release(object);
}

static PyMemberDef trace_members[] = {
    {"lines", T_OBJECT_EX, offsetof(Trace, lines), READONLY, "the lines that were written"},
    {"values", T_OBJECT_EX, offsetof(Trace, values), READONLY, "the scalars"},
    {"count", T_PYSSIZET, offsetof(Trace, count), 0, "how many lines have a name"},
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef number_members[] = {
    {"tracer", T_OBJECT_EX, offsetof(Number, tracer), READONLY, "the trace"},
    {"name", T_OBJECT_EX, offsetof(Number, name), READONLY, "the name in its text"},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot trace_slots[] = {
    {Py_tp_doc, "One trace: the lines of the text that is being written, and the numbers met."},
    {Py_tp_members, trace_members},
    {Py_tp_new, (void *)trace_new},
    {Py_tp_traverse, (void *)trace_traverse},
    {Py_tp_clear, (void *)trace_clear},
    {Py_tp_dealloc, (void *)trace_dealloc},
    {0, NULL},
};

static PyType_Slot number_slots[] = {
    {Py_tp_doc, "A number of a traced function: Number(tracer, name)."},
    {Py_tp_members, number_members},
    {Py_tp_new, (void *)number_new},
    {Py_tp_traverse, (void *)number_traverse},
    {Py_tp_clear, (void *)number_clear},
    {Py_tp_dealloc, (void *)number_dealloc},
    {Py_tp_hash, (void *)PyObject_HashNotImplemented},
    {Py_tp_richcompare, (void *)compare},
    {Py_nb_add, (void *)add},
    {Py_nb_subtract, (void *)subtract},
    {Py_nb_multiply, (void *)multiply},
    {Py_nb_true_divide, (void *)divide},
    {Py_nb_floor_divide, (void *)floor_divide},
    {Py_nb_remainder, (void *)remainder_of},
    {Py_nb_power, (void *)power},
    {Py_nb_and, (void *)and_of},
    {Py_nb_or, (void *)or_of},
    {Py_nb_xor, (void *)xor_of},
    {Py_nb_lshift, (void *)shift_left},
    {Py_nb_rshift, (void *)shift_right},
    {0, NULL},
};

static const unsigned int flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE;

bool trace_add_types(PyObject *module) {
  PyType_Spec trace = {"kjit._native.Trace", (int)sizeof(Trace), 0, flags, trace_slots};
  PyType_Spec number = {"kjit._native.Number", (int)sizeof(Number), 0, flags, number_slots};
  trace_type = (PyTypeObject *)PyType_FromSpec(&trace);
  number_type = trace_type ? (PyTypeObject *)PyType_FromSpec(&number) : NULL;
  if (!number_type) return false;
  Py_INCREF(trace_type); /* one for the module, one for this file */
  Py_INCREF(number_type);
  return PyModule_AddObject(module, "Trace", (PyObject *)trace_type) == 0 &&
         PyModule_AddObject(module, "Number", (PyObject *)number_type) == 0;
}

PyObject *trace_configure(PyObject *module, PyObject *args) {
  PyObject *function = NULL, *const before = operate;
  (void)module;
  if (!PyArg_ParseTuple(args, "On", &function, &scalars_max)) return NULL;
  Py_INCREF(operate = function);
  Py_XDECREF(before);
  Py_RETURN_NONE;
}
