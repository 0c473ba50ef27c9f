#include "link.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RECORDS 1000000
#define MAX_WAIT_MS 60000

/* Names of more headers are compared without the GIL. */
#define MANY_HEADERS 256
/* The names of so many are compared on the stack. */
#define FEW_HEADERS 16

enum { NO_RECORD = -1, UNREADABLE = -2 };

typedef struct {
    PyObject_HEAD
    PyObject *client; /* the confluent_kafka object, which keeps librdkafka's client alive */
    Link *link;
    int taking; /* guarded by the GIL */
} Consumer;

/* The records of one partition among those that were taken. */
typedef struct {
    rd_kafka_topic_t *topic;
    int32_t partition;
    Py_ssize_t count, filled;
    int64_t first, last; /* offsets */
    int has_gaps;
    int64_t lowest, highest; /* timestamps in ms */
    PyObject *keys, *values, *timestamps, *headers, *offsets;
} Group;

typedef struct {
    rd_kafka_message_t **messages;
    int32_t *group_of; /* by message; NO_RECORD: an event; UNREADABLE: a record that can't be read */
    Py_ssize_t count;
    ClientErrors errors;
    int checked; /* whether `group_of` has the records that can't be read */
    int doubtful; /* whether it must have them: one was found, or may be one */
    Group *groups;
    int32_t group_count, group_room;
    int32_t *table; /* places of groups by hash; -1: free */
    size_t table_size;
} Taken;

static PyObject *closed_error(void) {
    PyErr_SetString(PyExc_RuntimeError, "the client is closed");
    return NULL;
}

static PyObject *Consumer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"client", NULL};
    PyObject *client;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &client)) return NULL;
    Link *link = link_attach(client, CLIENT_CONSUMER);
    if (!link) return NULL;
    Consumer *self = (Consumer *)type->tp_alloc(type, 0);
    if (!self) {
        link_unreference(link);
        return NULL;
    }
    self->client = Py_NewRef(client);
    self->link = link;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&link->lock);
    if (link->client) link->queue = librdkafka.queue_new(link->client);
    pthread_mutex_unlock(&link->lock);
    Py_END_ALLOW_THREADS
    return (PyObject *)self;
}

static int Consumer_traverse(Consumer *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->client);
    return 0;
}

static int Consumer_clear(Consumer *self) {
    Py_CLEAR(self->client);
    return 0;
}

static void Consumer_dealloc(Consumer *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->link) {
        link_close(self->link);
        link_unreference(self->link);
    }
    Consumer_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *Consumer_close(Consumer *self, PyObject *unused) {
    (void)unused;
    link_close(self->link);
    Py_RETURN_NONE;
}

static PyObject *Consumer_forward(Consumer *self, PyObject *args) {
    const char *topic;
    int partition, found = 0, closed = 0;
    if (!PyArg_ParseTuple(args, "si", &topic, &partition)) return NULL;
    if (partition < 0) {
        PyErr_SetString(PyExc_ValueError, "a partition is at least 0");
        return NULL;
    }
    Link *link = self->link;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&link->lock);
    if (!link->queue) closed = 1;
    else {
        rd_kafka_queue_t *source = librdkafka.queue_get_partition(link->client, topic, partition);
        if (source) {
            librdkafka.queue_forward(source, link->queue);
            librdkafka.queue_destroy(source);
            found = 1;
        }
    }
    pthread_mutex_unlock(&link->lock);
    Py_END_ALLOW_THREADS
    return closed ? closed_error() : PyBool_FromLong(found);
}

static int by_text(const void *one, const void *other) {
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}

/* Whether the name of each header ends where librdkafka shows it to end, -1 without memory: it returns names as text of C.
 *
 * librdkafka finds headers by the whole name: as many as seem to have a name are found by it. It searches them one by one, so
 * it is asked once for each name. */
static int names_are_whole(const rd_kafka_headers_t *headers) {
    const char *few[FEW_HEADERS], **names = few;
    const void *value;
    size_t size, count = librdkafka.header_cnt(headers);
    if (count > FEW_HEADERS && !(names = malloc(count * sizeof *names))) return -1;
    int whole = 1;
    for (size_t i = 0; i < count && whole; i++) whole = !librdkafka.header_get_all(headers, i, &names[i], &value, &size);
    if (whole) qsort(names, count, sizeof *names, by_text);
    for (size_t i = 0, end; i < count && whole; i = end) {
        for (end = i + 1; end < count && !strcmp(names[end], names[i]);) end++;
        whole = !librdkafka.header_get(headers, end - i - 1, names[i], &value, &size);
    }
    if (names != few) free(names);
    return whole;
}

/* Return why the headers of a message can't be read, or NULL. */
static const char *fault_of(const rd_kafka_message_t *message) {
    rd_kafka_headers_t *headers = NULL;
    int error = librdkafka.message_headers(message, &headers);
    if (error) return error == ERROR_NO_ENTRY ? NULL : "it has more headers than librdkafka reads (100,000), or damaged ones";
    int whole = names_are_whole(headers);
    if (whole < 0) return "there is no memory for its headers";
    return whole ? NULL : "the name of a header contains a null character";
}

/* Take up to `most` messages; wait for the first one only. Return -1 where the client is closed. */
static Py_ssize_t take_messages(Link *link, Taken *taken, size_t most, int wait_ms) {
    rd_kafka_message_t **messages = taken->messages;
    ssize_t count = -1;
    pthread_mutex_lock(&link->lock);
    link_errors = &taken->errors;
    if (link->queue) {
        /* With a time-out librdkafka waits until it has all messages. */
        count = librdkafka.consume_batch_queue(link->queue, 0, messages, most);
        if (count == 0 && wait_ms) {
            count = librdkafka.consume_batch_queue(link->queue, wait_ms, messages, 1);
            if (count == 1 && most > 1) {
                ssize_t more = librdkafka.consume_batch_queue(link->queue, 0, messages + 1, most - 1);
                if (more > 0) count += more;
            }
        }
        if (count < 0) count = 0;
    }
    link_errors = NULL;
    pthread_mutex_unlock(&link->lock);
    return count;
}

static size_t place_of(const Taken *taken, rd_kafka_topic_t *topic, int32_t partition) {
    size_t place = (((size_t)(uintptr_t)topic >> 4) * 31 + (size_t)(uint32_t)partition) & (taken->table_size - 1);
    for (; taken->table[place] >= 0; place = (place + 1) & (taken->table_size - 1)) {
        const Group *group = &taken->groups[taken->table[place]];
        if (group->topic == topic && group->partition == partition) break;
    }
    return place;
}

/* Make room for another group; the table stays at most half full. */
static int grow(Taken *taken) {
    int32_t room = taken->group_room ? taken->group_room * 2 : 8;
    Group *groups = realloc(taken->groups, (size_t)room * sizeof *groups);
    if (!groups) return 0;
    taken->groups = groups;
    int32_t *table = realloc(taken->table, (size_t)room * 2 * sizeof *table);
    if (!table) return 0;
    taken->table = table;
    taken->group_room = room;
    taken->table_size = (size_t)room * 2;
    memset(table, 0xff, taken->table_size * sizeof *table);
    for (int32_t i = 0; i < taken->group_count; i++) table[place_of(taken, groups[i].topic, groups[i].partition)] = i;
    return 1;
}

/* Find the partition of each record, and count the records of each. Return 0 where memory is missing. */
static int arrange(Taken *taken) {
    int32_t last = -1;
    for (Py_ssize_t i = 0; i < taken->count; i++) {
        const rd_kafka_message_t *message = taken->messages[i];
        taken->group_of[i] = message->err ? NO_RECORD : taken->checked && fault_of(message) ? UNREADABLE : 0;
        if (taken->group_of[i] < 0) continue;
        if (last < 0 || taken->groups[last].topic != message->rkt || taken->groups[last].partition != message->partition) {
            if (taken->group_count == taken->group_room && !grow(taken)) return 0;
            size_t place = place_of(taken, message->rkt, message->partition);
            last = taken->table[place];
            if (last < 0) {
                last = taken->table[place] = taken->group_count++;
                taken->groups[last] = (Group){.topic = message->rkt, .partition = message->partition,
                                              .first = message->offset, .last = message->offset - 1,
                                              .lowest = INT64_MAX, .highest = INT64_MIN};
            }
        }
        taken->group_of[i] = last;
        Group *group = &taken->groups[last];
        group->count++;
        if (message->offset != group->last + 1) group->has_gaps = 1;
        group->last = message->offset;
    }
    return 1;
}

static PyObject *optional_bytes(const void *bytes, size_t size) {
    return bytes ? PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size) : Py_NewRef(Py_None);
}

static int add_record(Taken *taken, Group *group, const rd_kafka_message_t *message) {
    int kind;
    rd_kafka_headers_t *headers = NULL;
    int error = librdkafka.message_headers(message, &headers);
    if (error) headers = NULL;
    if (!taken->checked && (headers ? librdkafka.header_cnt(headers) > MANY_HEADERS || names_are_whole(headers) != 1
                                    : error != ERROR_NO_ENTRY)) {
        taken->doubtful = 1;
        return 0;
    }
    PyObject *key = optional_bytes(message->key, message->key_len);
    PyObject *value = optional_bytes(message->payload, message->len);
    int64_t time = librdkafka.message_timestamp(message, &kind);
    PyObject *timestamp = PyLong_FromLongLong(time);
    PyObject *pairs = headers ? headers_to_python(headers) : Py_NewRef(Py_None);
    PyObject *offset = group->offsets ? PyLong_FromLongLong(message->offset) : NULL;
    if (!key || !value || !timestamp || !pairs || (group->offsets && !offset)) {
        Py_XDECREF(key);
        Py_XDECREF(value);
        Py_XDECREF(timestamp);
        Py_XDECREF(pairs);
        Py_XDECREF(offset);
        return 0;
    }
    Py_ssize_t at = group->filled++;
    PyList_SET_ITEM(group->keys, at, key);
    PyList_SET_ITEM(group->values, at, value);
    PyList_SET_ITEM(group->timestamps, at, timestamp);
    PyList_SET_ITEM(group->headers, at, pairs);
    if (group->offsets) PyList_SET_ITEM(group->offsets, at, offset);
    if (time < group->lowest) group->lowest = time;
    if (time > group->highest) group->highest = time;
    return 1;
}

static PyObject *topic_text(rd_kafka_topic_t *topic) {
    PyObject *text = PyUnicode_FromString(librdkafka.topic_name(topic));
    if (text) PyUnicode_InternInPlace(&text);
    return text;
}

static PyObject *event(const rd_kafka_message_t *message, int error, PyObject *reason) {
    PyObject *topic = !reason ? NULL : message->rkt ? topic_text(message->rkt) : Py_NewRef(Py_None);
    if (!topic) {
        Py_XDECREF(reason);
        return NULL;
    }
    return Py_BuildValue("(NiLiN)", topic, (int)message->partition, (long long)message->offset, error, reason);
}

static PyObject *reason_text(const char *text) {
    return PyUnicode_DecodeUTF8(text ? text : "", text ? (Py_ssize_t)strlen(text) : 0, "replace");
}

/* Return what a message is that is no record, or none that can be read. */
static PyObject *event_of(const rd_kafka_message_t *message) {
    if (message->err) return event(message, message->err, reason_text(librdkafka.message_errstr(message)));
    return event(message, ERROR_BAD_MESSAGE,
                 PyUnicode_FromFormat("the record at offset %lld: %s", (long long)message->offset, fault_of(message)));
}

static PyObject *error_to_python(const ClientError *error) {
    PyObject *reason = reason_text(error->reason);
    return reason ? Py_BuildValue("(OiLiN)", Py_None, -1, -1LL, error->error, reason) : NULL;
}

/* Take the reference to an item. */
static int append(PyObject *list, PyObject *item) {
    int done = item && !PyList_Append(list, item);
    Py_XDECREF(item);
    return done;
}

static int make_lists(Group *group) {
    return (group->keys = PyList_New(group->count)) && (group->values = PyList_New(group->count)) &&
           (group->timestamps = PyList_New(group->count)) && (group->headers = PyList_New(group->count)) &&
           (!group->has_gaps || (group->offsets = PyList_New(group->count)));
}

static PyObject *to_python(Taken *taken) {
    PyObject *groups = NULL, *events = PyList_New(0);
    if (!events) return NULL;
    for (int32_t i = 0; i < taken->group_count; i++)
        if (!make_lists(&taken->groups[i])) goto failed;
    for (Py_ssize_t i = 0; i < taken->count; i++) {
        if (taken->group_of[i] >= 0) {
            if (!add_record(taken, &taken->groups[taken->group_of[i]], taken->messages[i])) goto failed;
        } else if (!append(events, event_of(taken->messages[i]))) goto failed;
    }
    for (const ClientError *error = taken->errors.first; error; error = error->next)
        if (!append(events, error_to_python(error))) goto failed;
    if (taken->errors.lost) {
        PyErr_NoMemory();
        goto failed;
    }
    if (!(groups = PyList_New(taken->group_count))) goto failed;
    for (int32_t i = 0; i < taken->group_count; i++) {
        Group *group = &taken->groups[i];
        PyObject *topic = topic_text(group->topic);
        if (!topic) goto failed;
        if (!group->offsets)
            group->offsets = PyObject_CallFunction((PyObject *)&PyRange_Type, "LL", (long long)group->first, (long long)group->last + 1);
        PyObject *row = !group->offsets
                            ? NULL
                            : Py_BuildValue("(OiOOOOO(LL))", topic, (int)group->partition, group->keys, group->values,
                                            group->timestamps, group->headers, group->offsets, (long long)group->lowest,
                                            (long long)group->highest);
        Py_XDECREF(topic);
        if (!row) goto failed;
        PyList_SET_ITEM(groups, i, row);
    }
    return Py_BuildValue("(NN)", groups, events);
failed:
    Py_XDECREF(groups);
    Py_DECREF(events);
    return NULL;
}

static void free_groups(Taken *taken) {
    for (int32_t i = 0; i < taken->group_count; i++) {
        Group *group = &taken->groups[i];
        Py_XDECREF(group->keys);
        Py_XDECREF(group->values);
        Py_XDECREF(group->timestamps);
        Py_XDECREF(group->headers);
        Py_XDECREF(group->offsets);
    }
    free(taken->groups);
    free(taken->table);
    taken->groups = NULL;
    taken->table = NULL;
    taken->group_count = taken->group_room = 0;
    taken->table_size = 0;
}

/* Sort out the records that can't be read, and return what came. */
static PyObject *to_python_checked(Taken *taken) {
    int complete;
    free_groups(taken);
    taken->checked = 1;
    Py_BEGIN_ALLOW_THREADS
    complete = arrange(taken);
    Py_END_ALLOW_THREADS
    return complete ? to_python(taken) : PyErr_NoMemory();
}

static void free_taken(Taken *taken) {
    free_groups(taken);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < taken->count; i++) librdkafka.message_destroy(taken->messages[i]);
    for (ClientError *error = taken->errors.first, *next; error; error = next) {
        next = error->next;
        free(error);
    }
    free(taken->messages);
    free(taken->group_of);
    Py_END_ALLOW_THREADS
}

static PyObject *Consumer_take(Consumer *self, PyObject *args) {
    Py_ssize_t most;
    int wait_ms;
    if (!PyArg_ParseTuple(args, "ni", &most, &wait_ms)) return NULL;
    if (most < 1 || most > MAX_RECORDS || wait_ms < 0 || wait_ms > MAX_WAIT_MS) {
        PyErr_Format(PyExc_ValueError, "take needs 1 to %d records and 0 to %d ms", MAX_RECORDS, MAX_WAIT_MS);
        return NULL;
    }
    if (self->taking) {
        PyErr_SetString(PyExc_RuntimeError, "another thread takes records from this consumer");
        return NULL;
    }
    Taken taken = {.messages = malloc((size_t)most * sizeof *taken.messages)};
    PyObject *result = NULL;
    int complete = 0;
    if (!taken.messages) return PyErr_NoMemory();
    Py_ssize_t count;
    self->taking = 1;
    Py_BEGIN_ALLOW_THREADS
    count = take_messages(self->link, &taken, (size_t)most, wait_ms);
    if (count > 0) {
        taken.count = count;
        taken.group_of = malloc((size_t)count * sizeof *taken.group_of);
        complete = taken.group_of && arrange(&taken);
    }
    Py_END_ALLOW_THREADS
    self->taking = 0;
    if (count < 0) closed_error();
    else if (count > 0 && !complete) PyErr_NoMemory();
    else if (!(result = to_python(&taken)) && taken.doubtful && !taken.checked) result = to_python_checked(&taken);
    free_taken(&taken);
    return result;
}

static PyMethodDef methods[] = {
    {"forward", (PyCFunction)Consumer_forward, METH_VARARGS,
     "forward(topic, partition)\n--\n\nLead the partition's records and events to this consumer; return whether the client knows it."},
    {"take", (PyCFunction)Consumer_take, METH_VARARGS,
     "take(most, wait_ms)\n--\n\nReturn available records as (topic, partition, keys, values, timestamps, headers, offsets,\n(lowest timestamp, highest one)) for each "
     "partition, and events as (topic, partition, offset, error, reason). Waits for the first of either.\nRaises RuntimeError while another thread takes records, and for a closed client."},
    {"close", (PyCFunction)Consumer_close, METH_NOARGS, "close()\n--\n\nFree what librdkafka keeps for this consumer."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Consumer(client)\n--\n\nTakes the records of a confluent_kafka.Consumer as columns. Raises LookupError."},
    {Py_tp_new, Consumer_new},
    {Py_tp_dealloc, Consumer_dealloc},
    {Py_tp_traverse, Consumer_traverse},
    {Py_tp_clear, Consumer_clear},
    {Py_tp_methods, methods},
    {0, NULL}};
static PyType_Spec spec = {"streamkit._native.Consumer", sizeof(Consumer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

int consumer_register(PyObject *module) {
    PyObject *type = PyType_FromSpec(&spec);
    int failed = !type || PyModule_AddObjectRef(module, "Consumer", type);
    Py_XDECREF(type);
    return failed ? -1 : 0;
}
