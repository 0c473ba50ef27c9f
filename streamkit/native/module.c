#include "link.h"
#include "values.h"

static PyObject *native_load(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *path;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path)) return NULL;
    const char *missing = librdkafka_load(PyBytes_AS_STRING(path));
    Py_DECREF(path);
    if (missing) return PyErr_Format(PyExc_ImportError, "%s", missing);
    return PyUnicode_FromString(librdkafka.version_str());
}

static PyMethodDef functions[] = {
    {"load", native_load, METH_VARARGS,
     "load(path)\n--\n\nUse the librdkafka that the loaded library at `path` uses; return its version. Raises ImportError."},
    {"unused", values_unused, METH_O, "unused(value)\n--\n\nAs streamkit.serdes.size.unused."},
    {"measured", (PyCFunction)(void (*)(void))values_measured, METH_FASTCALL,
     "measured(value, known)\n--\n\nReturn bytes and steps as Budget.size counts them, or None where only Python can."},
    {"merge", (PyCFunction)(void (*)(void))values_merge, METH_FASTCALL,
     "merge(*parts)\n--\n\nAs streamkit.expressions.helpers.merge."},
    {"big_number", bytes_big_number, METH_O,
     "big_number(texts)\n--\n\nAs streamkit.serdes.formats.json_text.has_big_number."},
    {"murmur3_128", bytes_murmur3_128, METH_VARARGS, "murmur3_128(data, seed)\n--\n\nAs streamkit.serdes.partitioner.murmur3_128_in_python."},
    {"in_order", rows_in_order, METH_O,
     "in_order(rows)\n--\n\nAs streamkit.state.engines.overlay.in_order_in_python."},
    {"count_in_entry", (PyCFunction)(void (*)(void))entries_count, METH_FASTCALL,
     "count_in_entry(entries, key, time, context, ticks)\n--\n\nCount in an entry of a cache; return False where Python has to."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "streamkit._native", "Columns of records, on the librdkafka that confluent-kafka has loaded.", -1,
    functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module && (consumer_register(module) || producer_register(module))) Py_CLEAR(module);
    return module;
}
