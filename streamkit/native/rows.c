/* The order of the rows of a commit: streamkit.state.engines.overlay, which says what it is for. */
#include <stdint.h>
#include <string.h>

#include "values.h"

typedef struct {
    uint64_t word; /* the first byte of the key and the seven after the prefix that keys share; equal words decide nothing */
    PyObject *key, *value;
} Row;

static uint64_t word_of(const unsigned char *key, Py_ssize_t length, Py_ssize_t from) {
    uint64_t word = length ? key[0] : 0;
    for (Py_ssize_t at = from; at < from + 7; at++) word = word << 8 | (at < length ? key[at] : 0);
    return word;
}

static int by_key(const void *left, const void *right) {
    const Row *one = left, *other = right;
    if (one->word != other->word) return one->word < other->word ? -1 : 1;
    Py_ssize_t length = PyBytes_GET_SIZE(one->key), other_length = PyBytes_GET_SIZE(other->key);
    int order = memcmp(PyBytes_AS_STRING(one->key), PyBytes_AS_STRING(other->key),
                       (size_t)(length < other_length ? length : other_length));
    return order ? order : (length > other_length) - (length < other_length);
}

/* How many bytes all keys share that begin with the same byte as the last one. */
static Py_ssize_t shared_bytes(const Row *rows, Py_ssize_t count) {
    const char *last = PyBytes_AS_STRING(rows[count - 1].key);
    Py_ssize_t shared = PyBytes_GET_SIZE(rows[count - 1].key);
    for (Py_ssize_t number = 0; number < count && shared > 1; number++) {
        const char *key = PyBytes_AS_STRING(rows[number].key);
        Py_ssize_t length = PyBytes_GET_SIZE(rows[number].key), at = 1;
        if (!length || key[0] != last[0]) continue;
        while (at < shared && at < length && key[at] == last[at]) at++;
        shared = at;
    }
    return shared;
}

static void sort(Row *rows, Py_ssize_t count) {
    Py_ssize_t shared = count ? shared_bytes(rows, count) : 0;
    const char *last = count ? PyBytes_AS_STRING(rows[count - 1].key) : NULL;
    for (Py_ssize_t number = 0; number < count; number++) {
        const char *key = PyBytes_AS_STRING(rows[number].key);
        Py_ssize_t from = shared > 1 && key[0] == last[0] ? shared : 1;
        rows[number].word = word_of((const unsigned char *)key, PyBytes_GET_SIZE(rows[number].key), from);
    }
    qsort(rows, (size_t)count, sizeof *rows, by_key);
}

static PyObject *columns(const Row *rows, Py_ssize_t count) {
    PyObject *keys = PyList_New(count), *values = PyList_New(count);
    PyObject *both = keys && values ? PyTuple_Pack(2, keys, values) : NULL;
    for (Py_ssize_t number = 0; both && number < count; number++) {
        PyList_SET_ITEM(keys, number, Py_NewRef(rows[number].key));
        PyList_SET_ITEM(values, number, Py_NewRef(rows[number].value));
    }
    Py_XDECREF(keys);
    Py_XDECREF(values);
    return both;
}

PyObject *rows_in_order(PyObject *module, PyObject *map) {
    (void)module;
    if (!PyDict_Check(map)) return PyErr_Format(PyExc_TypeError, "in_order() takes a dict of bytes");
    Py_ssize_t count = 0, position = 0;
    Row *rows = PyMem_Malloc((size_t)(PyDict_GET_SIZE(map) + 1) * sizeof *rows);
    if (!rows) return PyErr_NoMemory();
    PyObject *key, *value, *result = NULL;
    /* Nothing below runs code of Python: the dict keeps its rows. */
    while (PyDict_Next(map, &position, &key, &value) && PyBytes_CheckExact(key))
        rows[count++] = (Row){.key = key, .value = value};
    if (count < PyDict_GET_SIZE(map)) PyErr_SetString(PyExc_TypeError, "in_order() takes a dict of bytes");
    else {
        sort(rows, count);
        result = columns(rows, count);
    }
    PyMem_Free(rows);
    return result;
}
