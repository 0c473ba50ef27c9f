/* The check of a value before it is encoded as JSON: streamkit.serdes.size.unused, which says what it is for. And the objects of
 * `merge`. */
#include "values.h"

/* As in streamkit/serdes/size.py; a test compares the results. */
enum { SMALL = 1 << 18, CONTAINER = 1 << 10, ITEM = 1 << 5 };
static const double LEAST = 0.001, BEYOND = 10000000;

static Py_ssize_t room_beside(PyObject *part, Py_ssize_t room);

/* The room that is left beside the parts of a list or a tuple. */
static Py_ssize_t room_beside_items(PyObject *const *items, Py_ssize_t count, Py_ssize_t room) {
    room -= CONTAINER + ITEM * count;
    for (Py_ssize_t number = 0; number < count && room >= 0; number++) room = room_beside(items[number], room);
    return room;
}

static Py_ssize_t room_beside_fields(PyObject *fields, Py_ssize_t room) {
    PyObject *name, *part;
    Py_ssize_t position = 0;
    room -= CONTAINER + ITEM * PyDict_GET_SIZE(fields);
    while (room >= 0 && PyDict_Next(fields, &position, &name, &part)) {
        if (!PyUnicode_Check(name)) return -1;
        room = room_beside(part, room - PyUnicode_GET_LENGTH(name));
    }
    return room;
}

/* Each level of containers takes CONTAINER of the room, so that the depth of the calls is bounded. No call returns to the
 * interpreter, so that no container changes meanwhile. */
static Py_ssize_t room_beside(PyObject *part, Py_ssize_t room) {
    if (room < 0) return -1;
    if (PyUnicode_CheckExact(part)) return room - PyUnicode_GET_LENGTH(part);
    if (PyLong_CheckExact(part) || PyBool_Check(part) || part == Py_None) return room;
    if (PyFloat_CheckExact(part)) {
        double number = PyFloat_AS_DOUBLE(part), size = number < 0 ? -number : number;
        /* NaN fails every comparison. */
        return size == 0 || (size >= LEAST && size < BEYOND) ? room : -1;
    }
    if (PyDict_CheckExact(part)) return room_beside_fields(part, room);
    if (PyList_CheckExact(part)) return room_beside_items(((PyListObject *)part)->ob_item, PyList_GET_SIZE(part), room);
    if (PyTuple_CheckExact(part)) return room_beside_items(((PyTupleObject *)part)->ob_item, PyTuple_GET_SIZE(part), room);
    return -1;
}

PyObject *values_unused(PyObject *module, PyObject *value) {
    (void)module;
    return PyLong_FromSsize_t(room_beside(value, SMALL));
}

PyObject *values_merge(PyObject *module, PyObject *const *parts, Py_ssize_t count) {
    (void)module;
    for (Py_ssize_t number = 0; number < count; number++)
        if (!PyDict_Check(parts[number])) {
            const char *name = Py_TYPE(parts[number])->tp_name, *dot = strrchr(name, '.');
            return PyErr_Format(PyExc_TypeError, "merge() takes objects, not %s", dot ? dot + 1 : name);
        }
    PyObject *result;
    if (!count) result = PyDict_New();
    else if (PyDict_CheckExact(parts[0])) result = PyDict_Copy(parts[0]);
    else result = PyObject_CallMethod(parts[0], "copy", NULL);
    for (Py_ssize_t number = 1; result && number < count; number++)
        if (PyDict_Update(result, parts[number])) Py_CLEAR(result);
    return result;
}
