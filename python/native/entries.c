/* Traces that are kept under what their functions are told by (_recall.py): the walk through the functions, and one
 * look into the table.
 *
 * Threads: the interpreter lock is held but where the walk runs Python's own code; until its end an entry is held. */
#include "entries.h"

#include "walk.h"

/* What an entry holds, (variant, values, which of the tensors it reads, what lives), with the tensors of this walk. */
static PyObject *found_of(PyObject *entry, PyObject *tensors) {
  PyObject *const read = PyTuple_GetItem(entry, 2);
  const Py_ssize_t count = read ? PyTuple_Size(read) : -1;
  PyObject *const seen = count < 0 ? NULL : PyTuple_New(count);
  bool made = seen != NULL;
  for (Py_ssize_t i = 0; made && i < count; i++) {
    PyObject *const tensor = PyList_GetItem(tensors, PyLong_AsSsize_t(PyTuple_GetItem(read, i)));
    Py_XINCREF(tensor);
    made = tensor && PyTuple_SetItem(seen, i, tensor) == 0;
  }
  PyObject *const found = made ? PyTuple_Pack(3, PyTuple_GetItem(entry, 0), PyTuple_GetItem(entry, 1), seen) : NULL;
  Py_XDECREF(seen);
  return found;
}

/* The pair of what is found and, where nothing is, of what the functions are told by. */
static PyObject *look_up(PyObject *entries, const struct walk *walk) {
  PyObject *const key = PyList_AsTuple(walk->key);
  PyObject *const entry = key ? PyDict_GetItemWithError(entries, key) : NULL; /* borrowed */
  PyObject *pair = NULL;
  if (entry) {
    Py_INCREF(entry); /* the table may be cleared meanwhile */
    PyObject *const found = found_of(entry, walk->tensors);
    Py_DECREF(entry);
    pair = found ? PyTuple_Pack(2, found, Py_None) : NULL;
    Py_XDECREF(found);
  } else if (key && !PyErr_Occurred()) {
    PyObject *const told = PyTuple_Pack(3, key, walk->tensors, walk->kept);
    pair = told ? PyTuple_Pack(2, Py_None, told) : NULL;
    Py_XDECREF(told);
  }
  Py_XDECREF(key);
  return pair;
}

PyObject *entries_recall(PyObject *module, PyObject *args) {
  PyObject *entries = NULL, *functions = NULL;
  struct walk walk;
  (void)module;
  if (!PyArg_ParseTuple(args, "O!O!", &PyDict_Type, &entries, &PyTuple_Type, &functions)) return NULL;
  PyObject *found = walk_functions(functions, &walk) ? look_up(entries, &walk) : NULL;
  if (!found && walk_cannot_tell()) found = PyTuple_Pack(2, Py_None, Py_None);
  walk_finish(&walk);
  return found;
}
