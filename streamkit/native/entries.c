/* Counting in the entries of a cache: streamkit.state.stores.cache, which says what their places are. */
#include "values.h"

enum { VALUE, TIME, CONTEXT, PUT, USED, DATA, PLACES = 8 };

/* Whether only count, time and stamps change: an update that is not flushed, with the same context, and numbers. */
static int can_count(PyObject *entry, PyObject *time, PyObject *context) {
    if (!PyList_CheckExact(entry) || PyList_GET_SIZE(entry) != PLACES) return 0;
    PyObject *put = PyList_GET_ITEM(entry, PUT);
    return PyList_GET_ITEM(entry, CONTEXT) == context && PyLong_CheckExact(put) && PyObject_IsTrue(put) &&
           PyLong_CheckExact(PyList_GET_ITEM(entry, VALUE)) && PyLong_CheckExact(PyList_GET_ITEM(entry, TIME)) &&
           PyLong_CheckExact(time);
}

static int count_in(PyObject *entry, PyObject *time, PyObject *tick) {
    int beyond, late, early;
    long long number = PyLong_AsLongLongAndOverflow(PyList_GET_ITEM(entry, VALUE), &beyond);
    long long now = PyLong_AsLongLongAndOverflow(time, &late);
    long long last = PyLong_AsLongLongAndOverflow(PyList_GET_ITEM(entry, TIME), &early);
    if (beyond || late || early || number == LLONG_MAX) return 0;
    PyObject *more = PyLong_FromLongLong(number + 1);
    if (!more) return -1;
    PyObject *parts[] = {more, now > last ? time : PyList_GET_ITEM(entry, TIME), NULL, tick, tick, Py_None};
    for (int place = VALUE; place <= DATA; place++) {
        if (place == CONTEXT) continue;
        PyObject *before = PyList_GET_ITEM(entry, place);
        PyList_SET_ITEM(entry, place, Py_NewRef(parts[place]));
        /* Freed below, when the entry is whole: that may run code of a user. */
        parts[place] = before;
    }
    for (int place = VALUE; place <= DATA; place++)
        if (place != CONTEXT) Py_DECREF(parts[place]);
    Py_DECREF(more);
    return 1;
}

PyObject *entries_count(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 5 || !PyDict_CheckExact(arguments[0]) || !PyIter_Check(arguments[4])) {
        PyErr_SetString(PyExc_TypeError, "count_in_entry(entries, key, time, context, ticks) takes a dict, … and an iterator");
        return NULL;
    }
    /* No other key, so that the look-up runs no code of a user; what an iterator of a user changes is changed before it. */
    if (!PyBytes_CheckExact(arguments[1])) Py_RETURN_FALSE;
    PyObject *tick = PyIter_Next(arguments[4]);
    if (!tick) return PyErr_Occurred() ? NULL : PyBool_FromLong(0);
    PyObject *entry = PyDict_GetItemWithError(arguments[0], arguments[1]);
    int done = entry && can_count(entry, arguments[2], arguments[3]) ? count_in(entry, arguments[2], tick) : 0;
    Py_DECREF(tick);
    if (done < 0 || PyErr_Occurred()) return NULL;
    return PyBool_FromLong(done);
}
