/* Work on values that needs no client. */
#ifndef STREAMKIT_VALUES_H
#define STREAMKIT_VALUES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *values_unused(PyObject *module, PyObject *value);
PyObject *values_measured(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *values_merge(PyObject *module, PyObject *const *parts, Py_ssize_t count);
PyObject *entries_count(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *bytes_big_number(PyObject *module, PyObject *texts);
PyObject *bytes_murmur3_128(PyObject *module, PyObject *arguments);
PyObject *rows_in_order(PyObject *module, PyObject *map);

#endif
