/* The size of a value for the budget of expressions: streamkit.expressions.budget.Budget, which says what it is for. */
#include "values.h"

/* As in budget.py; a test compares the results. */
enum { SLOT = 8, KEPT = 256 };
static const long long MOST = 1LL << 60;
/* The value has a part that only Python measures; FAILED: an exception is set. */
enum { ODD = -1, FAILED = -2 };

typedef struct {
    PyObject *known;
    /* The entries of `known` that this call has made, which it takes back where Python begins again; NULL: none. */
    PyObject *made;
    long long steps;
} Walk;

/* What the items of a container sum up to: texts count double when one of them is not ASCII and all items are text. */
typedef struct {
    long long total, characters;
    Py_ssize_t texts, count;
    int wide;
} Sum;

static long long size_of(Walk *walk, PyObject *part);

static int add(Walk *walk, Sum *sum, PyObject *item) {
    sum->count++;
    if (PyUnicode_CheckExact(item)) {
        int wide = !PyUnicode_IS_ASCII(item);
        sum->texts++;
        sum->wide |= wide;
        sum->characters += PyUnicode_GET_LENGTH(item);
        sum->total += PyUnicode_GET_LENGTH(item) << wide;
        return 0;
    }
    long long size = size_of(walk, item);
    if (size < 0) return (int)size;
    sum->total += size;
    return sum->total < MOST ? 0 : ODD;
}

static long long summed(const Sum *sum) {
    return sum->texts == sum->count ? sum->characters << sum->wide : sum->total;
}

static long long size_of_items(Walk *walk, PyObject *const *items, Py_ssize_t count) {
    Sum sum = {0};
    for (Py_ssize_t number = 0; number < count; number++) {
        int error = add(walk, &sum, items[number]);
        if (error) return error;
    }
    return SLOT * count + summed(&sum);
}

static long long size_of_fields(Walk *walk, PyObject *fields) {
    PyObject *name, *value;
    Py_ssize_t position = 0;
    Sum names = {0}, values = {0};
    /* All names before all values, as in Python, so that parts that occur in both are counted alike. */
    while (PyDict_Next(fields, &position, &name, &value)) {
        int error = add(walk, &names, name);
        if (error) return error;
    }
    position = 0;
    while (PyDict_Next(fields, &position, &name, &value)) {
        int error = add(walk, &values, value);
        if (error) return error;
    }
    return 2 * SLOT * PyDict_GET_SIZE(fields) + summed(&names) + summed(&values);
}

/* The size that `known` has of a container: ODD where it has none, MOST where it is no size that C counts with. */
static long long look_up(Walk *walk, PyObject *container) {
    if (!PyDict_GET_SIZE(walk->known)) return ODD;
    PyObject *name = PyLong_FromVoidPtr(container);
    if (!name) return FAILED;
    PyObject *entry = PyDict_GetItemWithError(walk->known, name);
    Py_DECREF(name);
    if (!entry) return PyErr_Occurred() ? FAILED : ODD;
    PyObject *size = PyTuple_CheckExact(entry) && PyTuple_GET_SIZE(entry) == 2 ? PyTuple_GET_ITEM(entry, 1) : NULL;
    if (!size || !PyLong_CheckExact(size)) return MOST;
    int beyond;
    long long total = PyLong_AsLongLongAndOverflow(size, &beyond);
    return beyond || total < 0 ? MOST : total;
}

static int keep(Walk *walk, PyObject *container, long long total) {
    int error = FAILED;
    PyObject *name = PyLong_FromVoidPtr(container), *entry = Py_BuildValue("(OL)", container, total);
    if (!walk->made) walk->made = PyList_New(0);
    if (name && entry && walk->made && !PyList_Append(walk->made, name) && !PyDict_SetItem(walk->known, name, entry)) error = 0;
    Py_XDECREF(name);
    Py_XDECREF(entry);
    return error;
}

static long long size_of_container(Walk *walk, PyObject *container) {
    long long total = look_up(walk, container);
    if (total != ODD) return total < MOST ? total : ODD;
    Py_ssize_t count;
    if (Py_EnterRecursiveCall(" in a value")) return FAILED;
    if (PyDict_CheckExact(container)) {
        count = PyDict_GET_SIZE(container);
        total = size_of_fields(walk, container);
    } else if (PyList_CheckExact(container)) {
        count = PyList_GET_SIZE(container);
        total = size_of_items(walk, ((PyListObject *)container)->ob_item, count);
    } else {
        count = PyTuple_GET_SIZE(container);
        total = size_of_items(walk, ((PyTupleObject *)container)->ob_item, count);
    }
    Py_LeaveRecursiveCall();
    if (total < 0) return total;
    if (total >= MOST) return ODD;
    walk->steps += 1 + count;
    if (total >= KEPT && keep(walk, container, total)) return FAILED;
    return total;
}

/* No call runs code of a user, so that no container changes meanwhile. */
static long long size_of(Walk *walk, PyObject *part) {
    if (PyUnicode_CheckExact(part)) return PyUnicode_GET_LENGTH(part) << !PyUnicode_IS_ASCII(part);
    if (PyBool_Check(part) || part == Py_None || PyFloat_CheckExact(part)) return 0;
    if (PyLong_CheckExact(part)) {
        int beyond;
        long long number = PyLong_AsLongLongAndOverflow(part, &beyond);
        return beyond || number == LLONG_MIN ? ODD : 0;
    }
    if (PyBytes_CheckExact(part)) return PyBytes_GET_SIZE(part);
    if (PyDict_CheckExact(part) || PyList_CheckExact(part) || PyTuple_CheckExact(part)) return size_of_container(walk, part);
    return ODD;
}

/* Take back what was written to `known`, so that Python counts each step of its own walk. */
static int undo(Walk *walk) {
    for (Py_ssize_t number = 0; walk->made && number < PyList_GET_SIZE(walk->made); number++)
        if (PyDict_DelItem(walk->known, PyList_GET_ITEM(walk->made, number))) return -1;
    return 0;
}

PyObject *values_measured(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 2 || !PyDict_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "measured(value, known) takes a value and a dict");
        return NULL;
    }
    Walk walk = {arguments[1], NULL, 0};
    long long total = size_of(&walk, arguments[0]);
    PyObject *result = NULL;
    if (total >= 0) result = Py_BuildValue("(LL)", total, walk.steps);
    else if (total == ODD && !undo(&walk)) result = Py_NewRef(Py_None);
    Py_XDECREF(walk.made);
    return result;
}
