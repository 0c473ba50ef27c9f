/* Work on values that needs no client. */
#ifndef STREAMKIT_VALUES_H
#define STREAMKIT_VALUES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *values_unused(PyObject *module, PyObject *value);

#endif
