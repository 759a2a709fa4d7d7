/* _recall.walk_in_python() in C: values, functions, tuples, lists and tensors are told here, by the same steps, and
 * whatever else is left to Python, which goes on with the same key. A key is only compared with others that were made
 * the same way, so that numbers and tensors need not look as they do in Python's keys.
 *
 * Threads: the interpreter lock is held but where Python's own code runs. What a walk has met is held until its end, so
 * that no other object gets its address. */
#include "walk.h"

#include "tensors.h"

static PyObject *outlines, *constants, *kinds, *attributes, *look, *tell_other, *cannot_tell, *function_type,
    *method_type;
static long depth_max, length_max;
static PyObject *name_code, *name_closure, *name_defaults, *name_kwdefaults, *name_globals, *name_dict, *name_contents,
    *name_func, *name_self, *name_mro;

/* What a step came to. A walk that cannot tell has _recall.CannotTell set, as Python's has. */
static bool refuse(void) {
  PyErr_SetNone(cannot_tell);
  return false;
}

static bool tell(const struct walk *walk, PyObject *value, long depth);

/* Append a new reference, or NULL with an exception. */
static bool put_new(PyObject *list, PyObject *object) {
  if (!object) return false;
  const bool put = PyList_Append(list, object) == 0;
  Py_DECREF(object);
  return put;
}

static bool put_kind(const struct walk *walk, PyObject *value) {
  return PyList_Append(walk->key, (PyObject *)Py_TYPE(value)) == 0;
}

/* Tells a thing that is the same one as before by its number. */
static bool was_met(const struct walk *walk, PyObject *value, bool *out) {
  const Py_ssize_t count = PyDict_Size(walk->met);
  PyObject *const id = PyLong_FromVoidPtr(value);
  PyObject *const before = id ? PyDict_GetItemWithError(walk->met, id) : NULL; /* borrowed */
  bool told = false;
  *out = before != NULL;
  if (before) {
    told = PyList_Append(walk->key, before) == 0;
  } else if (id && !PyErr_Occurred()) {
    PyObject *const number = PyLong_FromSsize_t(count);
    told = number && PyDict_SetItem(walk->met, id, number) == 0 && PyList_Append(walk->alive, value) == 0 &&
           PyList_Append(walk->key, number) == 0;
    Py_XDECREF(number);
  }
  Py_XDECREF(id);
  return told;
}

static bool tell_by_python(const struct walk *walk, PyObject *value, long depth) {
  PyObject *const done = PyObject_CallFunction(tell_other, "OOOOOOl", value, walk->key, walk->tensors, walk->kept,
                                               walk->met, walk->alive, depth);
  Py_XDECREF(done);
  return done != NULL;
}

static bool tell_items(const struct walk *walk, PyObject *value, bool is_list, long depth) {
  const Py_ssize_t count = is_list ? PyList_Size(value) : PyTuple_Size(value);
  if (count > length_max) return refuse();
  if (!put_kind(walk, value) || !put_new(walk->key, PyLong_FromSsize_t(count))) return false;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *const each = is_list ? PySequence_GetItem(value, i) : PyTuple_GetItem(value, i);
    if (!is_list) Py_XINCREF(each);
    const bool told = each && tell(walk, each, depth + 1);
    Py_XDECREF(each);
    if (!told) return false;
  }
  return true;
}

static bool tell_list(const struct walk *walk, PyObject *value, long depth) {
  bool met = false;
  if (!was_met(walk, value, &met)) return false;
  return met || tell_items(walk, value, true, depth);
}

/* An attribute's value, told and given back. */
static bool tell_attribute(const struct walk *walk, PyObject *owner, PyObject *name, long depth) {
  PyObject *const value = PyObject_GetAttr(owner, name);
  const bool told = value && tell(walk, value, depth);
  Py_XDECREF(value);
  return told;
}

static bool tell_cells(const struct walk *walk, PyObject *closure, long depth) {
  if (closure == Py_None) return true;
  const Py_ssize_t count = PyTuple_Size(closure);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *const value = PyObject_GetAttr(PyTuple_GetItem(closure, i), name_contents);
    if (!value && PyErr_ExceptionMatches(PyExc_ValueError)) { /* an empty cell */
      PyErr_Clear();
      return refuse();
    }
    const bool told = value && tell(walk, value, depth + 1);
    Py_XDECREF(value);
    if (!told) return false;
  }
  return count >= 0;
}

/* names: the globals that the code names; builtins: of each, whether a builtin may have the name. */
static bool tell_globals(const struct walk *walk, PyObject *globals, PyObject *names, PyObject *builtins, long depth) {
  const Py_ssize_t count = PyTuple_Size(names);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *const name = PyTuple_GetItem(names, i);
    PyObject *const value = PyDict_GetItemWithError(globals, name); /* borrowed */
    if (!value && PyErr_Occurred()) return false;
    if (!value) {
      if (PyTuple_GetItem(builtins, i) != Py_True) return refuse();
      if (PyList_Append(walk->key, name) != 0) return false;
      continue;
    }
    Py_INCREF(value);
    const bool told = tell(walk, value, depth + 1);
    Py_DECREF(value);
    if (!told) return false;
  }
  return count >= 0;
}

/* A function's outline, borrowed: (code, names, builtins); NULL without an exception: Python has not seen the code. */
static PyObject *outline_of(PyObject *code) {
  PyObject *const id = PyLong_FromVoidPtr(code);
  PyObject *const found = id ? PyDict_GetItemWithError(outlines, id) : NULL;
  Py_XDECREF(id);
  return found;
}

static bool is_empty(PyObject *function, PyObject *name) {
  PyObject *const value = PyObject_GetAttr(function, name);
  const bool empty = value && (value == Py_None || (PyDict_Check(value) && PyDict_Size(value) == 0));
  Py_XDECREF(value);
  return empty;
}

static bool tell_seen(const struct walk *walk, PyObject *function, PyObject *code, PyObject *outline, long depth) {
  PyObject *const names = PyTuple_GetItem(outline, 1), *const builtins = PyTuple_GetItem(outline, 2);
  if (names == Py_None) return refuse();
  if (!put_new(walk->key, PyLong_FromVoidPtr(code)) || PyList_Append(walk->kept, code) != 0) return false;
  PyObject *const closure = PyObject_GetAttr(function, name_closure);
  PyObject *const globals = PyObject_GetAttr(function, name_globals);
  const bool told = closure && globals && tell_cells(walk, closure, depth) &&
                    tell_attribute(walk, function, name_defaults, depth + 1) &&
                    tell_globals(walk, globals, names, builtins, depth);
  Py_XDECREF(closure);
  Py_XDECREF(globals);
  return told;
}

/* Is it an object that stays what it is? Then it is told by itself. */
static bool tell_constant(const struct walk *walk, PyObject *value, bool *out) {
  PyObject *const id = PyLong_FromVoidPtr(value);
  *out = id && PyDict_GetItemWithError(constants, id) != NULL;
  Py_XDECREF(id);
  return !PyErr_Occurred() && (!*out || PyList_Append(walk->key, value) == 0);
}

/* A function without attributes and keyword defaults; others are Python's. Code that comes for the first time is looked
 * at by Python, which may find the function to be one that stays what it is. */
static bool tell_function(const struct walk *walk, PyObject *function, long depth) {
  PyObject *const code = PyObject_GetAttr(function, name_code);
  PyObject *outline = code ? outline_of(code) : NULL;
  bool is_constant = false, told = code && !PyErr_Occurred();
  if (told && !outline) {
    PyObject *const looked = PyObject_CallFunctionObjArgs(look, function, NULL);
    told = looked && tell_constant(walk, function, &is_constant);
    Py_XDECREF(looked);
    outline = told && !is_constant ? outline_of(code) : NULL;
  }
  if (told && outline && is_empty(function, name_dict) && is_empty(function, name_kwdefaults)) {
    Py_INCREF(outline); /* the table may be cleared meanwhile */
    told = tell_seen(walk, function, code, outline, depth);
    Py_DECREF(outline);
  } else if (told && !is_constant) {
    told = tell_by_python(walk, function, depth);
  }
  Py_XDECREF(code);
  return told;
}

static bool tell_tensor(const struct walk *walk, PyObject *tensor, PyObject *facts) {
  bool met = false;
  if (!was_met(walk, tensor, &met)) return false;
  if (met) return true;
  if (!is_empty(tensor, name_dict)) return PyErr_Occurred() ? false : refuse();
  return put_kind(walk, tensor) && PyList_Append(walk->key, facts) == 0 && PyList_Append(walk->tensors, tensor) == 0;
}

static bool tell_method(const struct walk *walk, PyObject *method, long depth) {
  return put_kind(walk, method) && tell_attribute(walk, method, name_func, depth + 1) &&
         tell_attribute(walk, method, name_self, depth + 1);
}

/* A class has the names that it had when Python looked at it: `shape` is (class, its names, those that are told). */
static bool has_same_names(PyObject *shape, bool *out) {
  PyObject *const named = PyObject_GetAttr(PyTuple_GetItem(shape, 0), name_dict);
  PyObject *const names = named ? PySequence_Tuple(named) : NULL;
  const int equal = names ? PyObject_RichCompareBool(names, PyTuple_GetItem(shape, 1), Py_EQ) : -1;
  *out = equal == 1;
  Py_XDECREF(names);
  Py_XDECREF(named);
  return equal >= 0;
}

/* An object's class is as Python saw it: `known` is (class, it and those above it, their shapes, how many attributes
 * code named then). */
static bool is_same(PyObject *object, PyObject *known, bool *out) {
  PyObject *const shapes = PyTuple_GetItem(known, 2);
  PyObject *const classes = PyObject_GetAttr((PyObject *)Py_TYPE(object), name_mro);
  const Py_ssize_t count = PyTuple_Size(shapes);
  bool asked = classes != NULL;
  *out = classes == PyTuple_GetItem(known, 1) && PyLong_AsSsize_t(PyTuple_GetItem(known, 3)) == PySet_Size(attributes);
  Py_XDECREF(classes);
  for (Py_ssize_t i = 0; asked && *out && i < count; i++)
    asked = has_same_names(PyTuple_GetItem(shapes, i), out);
  return asked;
}

static bool tell_class(const struct walk *walk, PyObject *shape, long depth) {
  PyObject *const named = PyObject_GetAttr(PyTuple_GetItem(shape, 0), name_dict);
  PyObject *const found = PyTuple_GetItem(shape, 2);
  const Py_ssize_t count = PyTuple_Size(found);
  bool told = named != NULL;
  for (Py_ssize_t i = 0; told && i < count; i++) {
    PyObject *const name = PyTuple_GetItem(found, i);
    PyObject *const value = PyObject_GetItem(named, name);
    told = value && PyList_Append(walk->key, name) == 0 && tell(walk, value, depth + 1);
    Py_XDECREF(value);
  }
  Py_XDECREF(named);
  return told;
}

/* Of what an object holds, that which some code names. */
static bool tell_held(const struct walk *walk, PyObject *object, long depth) {
  PyObject *const held = PyObject_GetAttr(object, name_dict);
  PyObject *const names = held && PyDict_Check(held) ? PyDict_Keys(held) : NULL;
  const Py_ssize_t count = names ? PyList_Size(names) : 0;
  bool told = names != NULL;
  if (held && !names && !PyErr_Occurred()) told = refuse();
  for (Py_ssize_t i = 0; told && i < count; i++) {
    PyObject *const name = PyList_GetItem(names, i); /* borrowed, as the list is nobody else's */
    const int is_named = PySet_Contains(attributes, name);
    told = is_named >= 0;
    if (is_named != 1) continue;
    PyObject *const value = PyObject_GetItem(held, name);
    told = value && PyList_Append(walk->key, name) == 0 && tell(walk, value, depth + 1);
    Py_XDECREF(value);
  }
  Py_XDECREF(names);
  Py_XDECREF(held);
  return told;
}

static bool tell_known(const struct walk *walk, PyObject *object, PyObject *shapes, long depth) {
  const Py_ssize_t count = PyTuple_Size(shapes);
  bool met = false;
  bool told = was_met(walk, object, &met);
  if (met) return told;
  told = told && put_kind(walk, object) && PyList_Append(walk->kept, (PyObject *)Py_TYPE(object)) == 0;
  for (Py_ssize_t i = 0; told && i < count; i++)
    told = tell_class(walk, PyTuple_GetItem(shapes, i), depth);
  return told && tell_held(walk, object, depth);
}

/* An object of a class that Python has looked at is told here; others are Python's. */
static bool tell_instance(const struct walk *walk, PyObject *object, long depth) {
  PyObject *const id = PyLong_FromVoidPtr(Py_TYPE(object));
  PyObject *const known = id ? PyDict_GetItemWithError(kinds, id) : NULL;
  bool same = false, told = id && !PyErr_Occurred();
  Py_XDECREF(id);
  Py_XINCREF(known); /* the table may be cleared meanwhile */
  if (told && known) told = is_same(object, known, &same);
  if (told)
    told = same ? tell_known(walk, object, PyTuple_GetItem(known, 2), depth) : tell_by_python(walk, object, depth);
  Py_XDECREF(known);
  return told;
}

static bool tell_object(const struct walk *walk, PyObject *value, long depth) {
  bool is_constant = false;
  if (!tell_constant(walk, value, &is_constant)) return false;
  if (is_constant) return true;
  if (depth >= depth_max) return refuse();
  if ((PyObject *)Py_TYPE(value) == function_type) return tell_function(walk, value, depth);
  if (PyTuple_CheckExact(value)) return tell_items(walk, value, false, depth);
  if (PyList_CheckExact(value)) return tell_list(walk, value, depth);
  if ((PyObject *)Py_TYPE(value) == method_type) return tell_method(walk, value, depth);
  PyObject *const facts = tensors_facts(value);
  if (!facts) return !PyErr_Occurred() && tell_instance(walk, value, depth);
  const bool told = tell_tensor(walk, value, facts);
  Py_DECREF(facts);
  return told;
}

static bool tell(const struct walk *walk, PyObject *value, long depth) {
  if (PyFloat_CheckExact(value)) { /* by its bits: 0.0 and -0.0 are equal, and nan is no nan */
    const double number = PyFloat_AsDouble(value);
    return put_kind(walk, value) &&
           put_new(walk->key, PyBytes_FromStringAndSize((const char *)&number, (Py_ssize_t)sizeof number));
  }
  if (value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyUnicode_CheckExact(value) ||
      PyBytes_CheckExact(value))
    return put_kind(walk, value) && PyList_Append(walk->key, value) == 0;
  return tell_object(walk, value, depth);
}

bool walk_functions(PyObject *functions, struct walk *out) {
  *out = (struct walk){PyList_New(0), PyList_New(0), PyList_New(0), PyDict_New(), PyList_New(0)};
  const Py_ssize_t count = PyTuple_Size(functions);
  bool told = count >= 0 && out->key && out->tensors && out->kept && out->met && out->alive;
  for (Py_ssize_t i = 0; told && i < count; i++)
    told = tell(out, PyTuple_GetItem(functions, i), 0);
  return told;
}

bool walk_cannot_tell(void) {
  if (!PyErr_ExceptionMatches(cannot_tell)) return false;
  PyErr_Clear();
  return true;
}

void walk_finish(struct walk *walk) {
  Py_CLEAR(walk->key);
  Py_CLEAR(walk->tensors);
  Py_CLEAR(walk->kept);
  Py_CLEAR(walk->met);
  Py_CLEAR(walk->alive);
}

PyObject *walk_configure(PyObject *module, PyObject *args) {
  PyObject *objects[9] = {NULL};
  PyObject **const places[] = {&outlines,   &constants,   &kinds,         &attributes, &look,
                               &tell_other, &cannot_tell, &function_type, &method_type};
  (void)module;
  if (!PyArg_ParseTuple(args, "O!O!O!OOOOOOll", &PyDict_Type, &objects[0], &PyDict_Type, &objects[1], &PyDict_Type,
                        &objects[2], &objects[3], &objects[4], &objects[5], &objects[6], &objects[7], &objects[8],
                        &depth_max, &length_max))
    return NULL;
  for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
    PyObject *const before = *places[i];
    Py_INCREF(objects[i]);
    *places[i] = objects[i];
    Py_XDECREF(before);
  }
  Py_RETURN_NONE;
}

bool walk_start(void) {
  const struct {
    PyObject **where;
    const char *text;
  } names[] = {{&name_code, "__code__"},          {&name_closure, "__closure__"},
               {&name_defaults, "__defaults__"},  {&name_kwdefaults, "__kwdefaults__"},
               {&name_globals, "__globals__"},    {&name_dict, "__dict__"},
               {&name_contents, "cell_contents"}, {&name_func, "__func__"},
               {&name_self, "__self__"},          {&name_mro, "__mro__"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    *names[i].where = PyUnicode_InternFromString(names[i].text);
    if (!*names[i].where) return false;
  }
  return true;
}
