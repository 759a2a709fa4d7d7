/* Repeated requests: kjit_build() for a request that Python holds, and the artifact that it gave before.
 *
 * The library is asked every time, since it is the one that knows whether a header has changed. What Python has read of
 * an artifact in memory is in a dict by the artifact's key; so a hit copies nothing, and is one call of this module.
 * The interpreter lock is given up while the library works, because that may be a compile. */
#include "recall.h"

typedef kjit_status build_function(kjit_runtime *, const kjit_build_request *, kjit_artifact **, kjit_error *);
typedef kjit_status info_function(const kjit_artifact *, kjit_artifact_info *, kjit_error *);
typedef void release_function(kjit_artifact *);

static build_function *build;
static info_function *get_info;
static release_function *release;
static PyObject *known;

PyObject *recall_configure(PyObject *module, PyObject *args) {
  unsigned long long addresses[3] = {0};
  PyObject *table = NULL;
  (void)module;
  if (!PyArg_ParseTuple(args, "KKKO!", &addresses[0], &addresses[1], &addresses[2], &PyDict_Type, &table)) return NULL;
  build = (build_function *)(uintptr_t)addresses[0];
  get_info = (info_function *)(uintptr_t)addresses[1];
  release = (release_function *)(uintptr_t)addresses[2];
  Py_INCREF(table);
  Py_XDECREF(known);
  known = table;
  return PyLong_FromLong(0);
}

/* What Python read of this artifact before, a new reference; NULL without an exception: nothing. */
static PyObject *find_known(const kjit_artifact *artifact) {
  kjit_artifact_info info = {.struct_size = sizeof info};
  if (get_info(artifact, &info, NULL) != KJIT_OK || info.origin != KJIT_ORIGIN_MEMORY) return NULL;
  PyObject *const key = PyBytes_FromString(info.key);
  PyObject *const found = key ? PyDict_GetItemWithError(known, key) : NULL;
  Py_XINCREF(found);
  Py_XDECREF(key);
  return found;
}

PyObject *recall_build(PyObject *module, PyObject *args) {
  unsigned long long runtime = 0, request = 0;
  kjit_artifact *artifact = NULL;
  kjit_error error;
  (void)module;
  if (!PyArg_ParseTuple(args, "KK", &runtime, &request)) return NULL;
  PyThreadState *const thread = PyEval_SaveThread();
  const kjit_status status =
      build((kjit_runtime *)(uintptr_t)runtime, (const kjit_build_request *)(uintptr_t)request, &artifact, &error);
  PyEval_RestoreThread(thread);
  PyObject *const found = status == KJIT_OK ? find_known(artifact) : NULL;
  if (!found && !PyErr_Occurred())
    return Py_BuildValue("iKy#", (int)status, (unsigned long long)(uintptr_t)artifact, (const char *)&error,
                         (Py_ssize_t)sizeof error);
  release(artifact);
  return found;
}
