/* A tensor of PyTorch as DLPack's exchange table shows it: address, shape, strides, type and device in one call, with
 * nothing made and nothing kept. */
#ifndef KJIT_NATIVE_DLPACK_H
#define KJIT_NATIVE_DLPACK_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

/* The device_type of the processor's memory. */
enum { DLPACK_CPU = 1 };

/* DLTensor of DLPack 1.x. Shape and strides are the tensor's own, and of use until other code runs. */
struct dlpack_tensor {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};

/* configure_tensors(table, Tensor, Parameter): DLPack's exchange table, which PyTorch from 2.10 on has as a capsule
 * at Tensor.__dlpack_c_exchange_api__, and the types whose objects it is asked about. Returns whether it can be used:
 * only a table of version 1 with the function that is needed here can. */
PyObject *dlpack_configure(PyObject *module, PyObject *args);

/* What the table says of an object. False without an exception: there is no table, or the object is of another type,
 * as those are whose methods somebody has replaced, or the table cannot tell. */
bool dlpack_read(PyObject *object, struct dlpack_tensor *out);

#endif
