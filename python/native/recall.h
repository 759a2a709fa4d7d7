/* Repeated requests for artifacts that are in memory. */
#ifndef KJIT_NATIVE_RECALL_H
#define KJIT_NATIVE_RECALL_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <kjit/build.h>
#include <stdint.h>

/* configure_requests(kjit_build, kjit_artifact_get_info, kjit_artifact_release, known): the addresses of three
 * functions, and a dict from artifacts' keys to what was read of them. */
PyObject *recall_configure(PyObject *module, PyObject *args);

/* build(runtime, request): two addresses. Returns the known artifact, or (status, artifact's address, kjit_error's
 * bytes), whose artifact the caller gives back. */
PyObject *recall_build(PyObject *module, PyObject *args);

#endif
