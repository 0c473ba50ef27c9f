#include "sender.h"

#include <stdlib.h>
#include <string.h>

/* Rows that are handed over without the GIL at a time. */
#define CHUNK 1024
#define FIELDS 6

typedef struct {
    PyObject_HEAD
    PyObject *client; /* the confluent_kafka object, which keeps librdkafka's client alive */
    Link *link;
    PyObject *topic_places; /* dict: name -> place in link->topics */
    PyObject *last_name;
    Py_ssize_t last_place;
    Sender *sender;    /* NULL until it is needed */
    PyObject *sending; /* the rows that it has or had; NULL: none */
} Producer;

static PyObject *Producer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"client", NULL};
    PyObject *client;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &client)) return NULL;
    Link *link = link_attach(client, CLIENT_PRODUCER);
    if (!link) return NULL;
    Producer *self = (Producer *)type->tp_alloc(type, 0);
    if (!self) {
        link_unreference(link);
        return NULL;
    }
    self->client = Py_NewRef(client);
    self->link = link;
    if (!(self->topic_places = PyDict_New())) Py_CLEAR(self);
    return (PyObject *)self;
}

static int Producer_traverse(Producer *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->client);
    Py_VISIT(self->topic_places);
    Py_VISIT(self->sending);
    return 0;
}

static int Producer_clear(Producer *self) {
    Py_CLEAR(self->client);
    Py_CLEAR(self->topic_places);
    Py_CLEAR(self->last_name);
    /* The bytes of rows stay until the sender has ended. */
    if (!self->sender) Py_CLEAR(self->sending);
    return 0;
}

static void Producer_dealloc(Producer *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->sender) {
        Py_BEGIN_ALLOW_THREADS
        sender_end(self->sender);
        Py_END_ALLOW_THREADS
        self->sender = NULL;
    }
    if (self->link) {
        link_close(self->link);
        link_unreference(self->link);
    }
    Producer_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *Producer_close(Producer *self, PyObject *unused) {
    (void)unused;
    link_close(self->link);
    Py_RETURN_NONE;
}

/* Return the place of a new topic, or -1 and an error of librdkafka, ERROR_FAIL where the client is closed. */
static Py_ssize_t add_topic(Link *link, const char *name, int *error) {
    Py_ssize_t place = -1;
    *error = ERROR_FAIL;
    pthread_mutex_lock(&link->lock);
    Topic *topics = link->client ? realloc(link->topics, (link->topic_count + 1) * sizeof *topics) : NULL;
    if (topics) {
        link->topics = topics;
        rd_kafka_topic_t *topic = librdkafka.topic_new(link->client, name, NULL);
        char *copy = strdup(name);
        if (topic && copy) {
            topics[link->topic_count] = (Topic){copy, topic};
            place = (Py_ssize_t)link->topic_count++;
        } else {
            if (topic) librdkafka.topic_destroy(topic);
            else *error = librdkafka.last_error();
            free(copy);
        }
    }
    pthread_mutex_unlock(&link->lock);
    return place;
}

/* Return the place of a topic; -1 with `error` for one that librdkafka refuses, -2 with an exception set. */
static Py_ssize_t topic_place(Producer *self, PyObject *name, int *error) {
    if (name == self->last_name) return self->last_place;
    if (!PyUnicode_CheckExact(name)) {
        PyErr_Format(PyExc_TypeError, "a topic is a str, not %.100s", Py_TYPE(name)->tp_name);
        return -2;
    }
    Py_ssize_t place;
    PyObject *known = PyDict_GetItemWithError(self->topic_places, name);
    if (known) place = PyLong_AsSsize_t(known);
    else {
        if (PyErr_Occurred()) return -2;
        Py_ssize_t size;
        const char *text = PyUnicode_AsUTF8AndSize(name, &size);
        if (!text) return -2;
        if ((size_t)size != strlen(text)) {
            PyErr_SetString(PyExc_ValueError, "a topic has no null character");
            return -2;
        }
        Py_BEGIN_ALLOW_THREADS
        place = add_topic(self->link, text, error);
        Py_END_ALLOW_THREADS
        if (place < 0) return -1;
        PyObject *number = PyLong_FromSsize_t(place);
        int failed = !number || PyDict_SetItem(self->topic_places, name, number);
        Py_XDECREF(number);
        if (failed) return -2;
    }
    Py_XSETREF(self->last_name, Py_NewRef(name));
    self->last_place = place;
    return place;
}

static int read_bytes(PyObject *object, const char *what, const char **bytes, Py_ssize_t *size) {
    if (object == Py_None) {
        *bytes = NULL;
        *size = 0;
        return 1;
    }
    if (!PyBytes_Check(object)) {
        PyErr_Format(PyExc_TypeError, "a %s is bytes or None, not %.100s", what, Py_TYPE(object)->tp_name);
        return 0;
    }
    *bytes = PyBytes_AS_STRING(object);
    *size = PyBytes_GET_SIZE(object);
    return 1;
}

/* Return NULL with an exception set; or with `error` for a name that could not be read back. */
static rd_kafka_headers_t *read_headers(PyObject *object, int *error) {
    if (!PyList_Check(object) && !PyTuple_Check(object)) {
        PyErr_Format(PyExc_TypeError, "headers are a list or None, not %.100s", Py_TYPE(object)->tp_name);
        return NULL;
    }
    rd_kafka_headers_t *headers = librdkafka.headers_new((size_t)PySequence_Fast_GET_SIZE(object));
    if (!headers) return (rd_kafka_headers_t *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); i++) {
        PyObject *pair = PySequence_Fast_GET_ITEM(object, i);
        const char *name = NULL, *value;
        Py_ssize_t name_size, size;
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || !PyUnicode_Check(PyTuple_GET_ITEM(pair, 0)))
            PyErr_SetString(PyExc_TypeError, "a header is a tuple of a str, and bytes or None");
        else if (read_bytes(PyTuple_GET_ITEM(pair, 1), "header", &value, &size))
            name = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(pair, 0), &name_size);
        if (name && strlen(name) != (size_t)name_size) {
            *error = ERROR_INVALID_ARGUMENT;
            name = NULL;
        }
        if (!name) {
            librdkafka.headers_destroy(headers);
            return NULL;
        }
        librdkafka.header_add(headers, name, name_size, value, value ? size : 0);
    }
    return headers;
}

/* Return 1, 0 with an exception set, or -1 with the error of its topic or its headers. */
static int read_row(Producer *self, PyObject *object, Row *row, int *error) {
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != FIELDS) {
        PyErr_SetString(PyExc_TypeError, "a row is a tuple of topic, key, value, timestamp, headers and partition");
        return 0;
    }
    PyObject *timestamp = PyTuple_GET_ITEM(object, 3), *headers = PyTuple_GET_ITEM(object, 4);
    PyObject *partition = PyTuple_GET_ITEM(object, 5);
    if (!read_bytes(PyTuple_GET_ITEM(object, 1), "key", &row->key, &row->key_size)) return 0;
    if (!read_bytes(PyTuple_GET_ITEM(object, 2), "value", &row->value, &row->value_size)) return 0;
    /* librdkafka takes 0 for the current time, so that event time 0 becomes 1. */
    row->timestamp = 0;
    if (timestamp != Py_None) {
        row->timestamp = PyLong_AsLongLong(timestamp);
        if (row->timestamp == -1 && PyErr_Occurred()) return 0;
        row->timestamp = row->timestamp == -1 ? 0 : row->timestamp ? row->timestamp : 1;
    }
    row->partition = -1;
    if (partition != Py_None) {
        long number = PyLong_AsLong(partition);
        if (number == -1 && PyErr_Occurred()) return 0;
        if (number < -1 || number > INT32_MAX) {
            PyErr_SetString(PyExc_OverflowError, "a partition is a number of 31 bits");
            return 0;
        }
        row->partition = (int32_t)number;
    }
    row->topic = topic_place(self, PyTuple_GET_ITEM(object, 0), error);
    if (row->topic < 0) return row->topic == -2 ? 0 : -1;
    row->headers = NULL;
    if (headers == Py_None) return 1;
    int refused = 0;
    if ((row->headers = read_headers(headers, &refused))) return 1;
    if (!refused) return 0;
    *error = refused;
    return -1;
}

static PyObject *Producer_send(Producer *self, PyObject *args) {
    PyObject *given;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(args, "On", &given, &at)) return NULL;
    if (at < 0) {
        PyErr_SetString(PyExc_ValueError, "the first row is at least 0");
        return NULL;
    }
    /* A tuple of its own: the rows stay while another thread changes the list. */
    PyObject *rows = PySequence_Tuple(given);
    Row *chunk = rows ? malloc(CHUNK * sizeof *chunk) : NULL;
    if (rows && !chunk) PyErr_NoMemory();
    Py_ssize_t total = rows ? PyTuple_GET_SIZE(rows) : 0;
    int error = 0, closed = 0, read = chunk ? 1 : 0;
    while (read == 1 && !error && !closed && at < total) {
        Py_ssize_t count = 0, done;
        int refused = 0;
        while (count < CHUNK && at + count < total) {
            if ((read = read_row(self, PyTuple_GET_ITEM(rows, at + count), &chunk[count], &refused)) != 1) break;
            count++;
        }
        /* The rows before one that can't be read are written. */
        Py_BEGIN_ALLOW_THREADS
        done = produce_rows(self->link, chunk, count, &error);
        Py_END_ALLOW_THREADS
        if (done < 0) closed = 1;
        else at += done;
        if (read == -1 && !error) error = refused;
    }
    free(chunk);
    Py_XDECREF(rows);
    if (read == 0) return NULL;
    if (closed) {
        PyErr_SetString(PyExc_RuntimeError, "the client is closed");
        return NULL;
    }
    return Py_BuildValue("(ni)", at, error);
}

static PyObject *Producer_begin(Producer *self, PyObject *given) {
    if (self->sending) {
        PyErr_SetString(PyExc_RuntimeError, "earlier rows are not finished");
        return NULL;
    }
    PyObject *rows = PySequence_Tuple(given);
    if (!rows) return NULL;
    Py_ssize_t total = PyTuple_GET_SIZE(rows), count = 0;
    int read = 1, refused;
    Row *found = malloc((size_t)(total ? total : 1) * sizeof *found);
    if (found && !self->sender) self->sender = sender_start(self->link);
    if (found && self->sender)
        while (count < total && (read = read_row(self, PyTuple_GET_ITEM(rows, count), &found[count], &refused)) == 1) count++;
    if (!found || !self->sender || count < total || self->sending) {
        /* `send` raises what is wrong with a row, after those before it. */
        PyErr_Clear();
        for (Py_ssize_t i = 0; i < count; i++)
            if (found[i].headers) librdkafka.headers_destroy(found[i].headers);
        free(found);
        Py_DECREF(rows);
        Py_RETURN_FALSE;
    }
    self->sending = rows;
    sender_give(self->sender, found, total);
    Py_RETURN_TRUE;
}

static PyObject *Producer_finish(Producer *self, PyObject *unused) {
    (void)unused;
    if (!self->sending) return Py_BuildValue("(ii)", 0, 0);
    Py_ssize_t done;
    int error;
    Py_BEGIN_ALLOW_THREADS
    done = sender_wait(self->sender, &error);
    Py_END_ALLOW_THREADS
    /* Another thread may have waited too, and have begun with other rows. */
    if (!sender_is_busy(self->sender)) Py_CLEAR(self->sending);
    if (done < 0) {
        PyErr_SetString(PyExc_RuntimeError, "the client is closed");
        return NULL;
    }
    return Py_BuildValue("(ni)", done, error);
}

static PyObject *failure_to_python(const Failure *failure) {
    PyObject *headers = headers_to_python(failure->headers);
    if (!headers) return NULL;
    PyObject *timestamp = failure->timestamp < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(failure->timestamp);
    PyObject *partition = failure->partition < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(failure->partition);
    if (!timestamp || !partition) {
        Py_DECREF(headers);
        Py_XDECREF(timestamp);
        Py_XDECREF(partition);
        return NULL;
    }
    return Py_BuildValue("((sy#y#NNN)i)", failure->topic, failure->key, (Py_ssize_t)failure->key_size, failure->value,
                         (Py_ssize_t)failure->value_size, timestamp, headers, partition, failure->error);
}

static PyObject *Producer_failures(Producer *self, PyObject *unused) {
    (void)unused;
    PyObject *list = PyList_New(0);
    if (!list) return NULL;
    int lost;
    for (Failure *each = link_take_failures(self->link, &lost); each;) {
        Failure *next = each->next;
        PyObject *row = list ? failure_to_python(each) : NULL;
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
        link_free_failure(each);
        each = next;
    }
    if (lost && list) {
        Py_CLEAR(list);
        PyErr_NoMemory();
    }
    return list;
}

static PyMethodDef methods[] = {
    {"send", (PyCFunction)Producer_send, METH_VARARGS,
     "send(rows, first)\n--\n\nHand over the rows (topic, key, value, timestamp, headers, partition) from place `first` on; return the "
     "place\nof the first row that librdkafka refused and its error, or the number of rows and 0."},
    {"begin", (PyCFunction)Producer_begin, METH_O,
     "begin(rows)\n--\n\nLet a thread hand over rows, and return at once; return whether it does, else they are for `send`."},
    {"finish", (PyCFunction)Producer_finish, METH_NOARGS,
     "finish()\n--\n\nWait until the thread has handed over its rows; return as `send` does."},
    {"failures", (PyCFunction)Producer_failures, METH_NOARGS,
     "failures()\n--\n\nReturn the rows that were not delivered since the last call, each as (row, error)."},
    {"close", (PyCFunction)Producer_close, METH_NOARGS, "close()\n--\n\nFree what librdkafka keeps for this producer."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Producer(client)\n--\n\nWrites rows through a confluent_kafka.Producer. Raises LookupError."},
    {Py_tp_new, Producer_new},
    {Py_tp_dealloc, Producer_dealloc},
    {Py_tp_traverse, Producer_traverse},
    {Py_tp_clear, Producer_clear},
    {Py_tp_methods, methods},
    {0, NULL}};
static PyType_Spec spec = {"streamkit._native.Producer", sizeof(Producer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

int producer_register(PyObject *module) {
    PyObject *type = PyType_FromSpec(&spec);
    int failed = !type || PyModule_AddObjectRef(module, "Producer", type);
    Py_XDECREF(type);
    return failed ? -1 : 0;
}
