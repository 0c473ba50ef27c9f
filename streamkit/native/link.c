#include "link.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "streamkit"

Librdkafka librdkafka;
int librdkafka_loaded;
_Thread_local int link_producing;
_Thread_local ClientErrors *link_errors;

static pthread_mutex_t links_lock = PTHREAD_MUTEX_INITIALIZER;
static Link *links;
static _Atomic uintptr_t last_number;
/* That of confluent-kafka, which is the same for all clients. */
static error_cb_t *_Atomic error_cb;

const char *librdkafka_load(const char *path) {
    if (librdkafka_loaded) return NULL;
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return "its library is not loaded";
#define FIND(result, name, arguments)                                             \
    *(void **)&librdkafka.name = dlsym(library, "rd_kafka_" #name);                \
    if (!librdkafka.name) return "it has no function rd_kafka_" #name;
    LIBRDKAFKA_FUNCTIONS(FIND)
#undef FIND
    librdkafka_loaded = 1;
    return NULL; /* the library stays open: its functions are used until the process ends */
}

static void free_link(Link *link) {
    int lost;
    for (Failure *each = link_take_failures(link, &lost); each;) {
        Failure *next = each->next;
        link_free_failure(each);
        each = next;
    }
    pthread_mutex_destroy(&link->lock);
    pthread_mutex_destroy(&link->failures_lock);
    free(link);
}

void link_unreference(Link *link) {
    pthread_mutex_lock(&links_lock);
    int left = --link->references;
    pthread_mutex_unlock(&links_lock);
    if (!left) free_link(link);
}

void link_release(Link *link) {
    if (link->queue) librdkafka.queue_destroy(link->queue);
    link->queue = NULL;
    for (size_t i = 0; i < link->topic_count; i++) {
        librdkafka.topic_destroy(link->topics[i].topic);
        free(link->topics[i].name);
    }
    free(link->topics);
    link->topics = NULL;
    link->topic_count = 0;
    link->client = NULL;
}

void link_close(Link *link) {
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&link->lock);
    link_release(link);
    pthread_mutex_unlock(&link->lock);
    Py_END_ALLOW_THREADS
}

/* Return the link with this number, with a reference; NULL where its client has been destroyed. */
static Link *find_link(uintptr_t number) {
    pthread_mutex_lock(&links_lock);
    Link *link = links;
    while (link && link->number != number) link = link->next;
    if (link) link->references++;
    pthread_mutex_unlock(&links_lock);
    return link;
}

static char *copy_bytes(const void *bytes, size_t size) {
    char *copy = malloc(size ? size : 1);
    if (copy && size) memcpy(copy, bytes, size);
    return copy;
}

/* Return a copy of a record that failed, or NULL where memory is missing. */
static Failure *copy_failure(const rd_kafka_message_t *message) {
    Failure *failure = calloc(1, sizeof *failure);
    if (!failure) return NULL;
    failure->topic = strdup(message->rkt ? librdkafka.topic_name(message->rkt) : "");
    if (message->key) failure->key = copy_bytes(message->key, failure->key_size = message->key_len);
    if (message->payload) failure->value = copy_bytes(message->payload, failure->value_size = message->len);
    int kind = TIMESTAMP_NOT_AVAILABLE;
    int64_t timestamp = librdkafka.message_timestamp(message, &kind);
    failure->timestamp = kind == TIMESTAMP_NOT_AVAILABLE ? -1 : timestamp;
    failure->partition = message->partition;
    rd_kafka_headers_t *headers = NULL;
    if (!librdkafka.message_headers(message, &headers) && headers) failure->headers = librdkafka.headers_copy(headers);
    failure->error = message->err;
    if (failure->topic && (failure->key || !message->key) && (failure->value || !message->payload)) return failure;
    link_free_failure(failure);
    return NULL;
}

/* Called by librdkafka's threads, without the GIL, for each record that was delivered or failed. */
static int on_acknowledgement(rd_kafka_t *client, rd_kafka_message_t *message, void *opaque) {
    (void)client;
    /* Records that an abort or a close drops did not fail. */
    if (!message->err || link_producing || message->err == ERROR_PURGE_QUEUE || message->err == ERROR_PURGE_INFLIGHT) return 0;
    /* librdkafka calls on_destroy before it fails the records that are left. Their reports have no reader. */
    Link *link = find_link((uintptr_t)opaque);
    if (!link) return 0;
    Failure *failure = copy_failure(message);
    pthread_mutex_lock(&link->failures_lock);
    if (!failure) link->failure_lost = 1;
    else if (link->last_failure) link->last_failure->next = failure;
    else link->first_failure = failure;
    if (failure) link->last_failure = failure;
    pthread_mutex_unlock(&link->failures_lock);
    link_unreference(link);
    return 0;
}

Failure *link_take_failures(Link *link, int *lost) {
    pthread_mutex_lock(&link->failures_lock);
    *lost = link->failure_lost;
    link->failure_lost = 0;
    Failure *first = link->first_failure;
    link->first_failure = link->last_failure = NULL;
    pthread_mutex_unlock(&link->failures_lock);
    return first;
}

void link_free_failure(Failure *failure) {
    if (failure->headers) librdkafka.headers_destroy(failure->headers);
    free(failure->topic);
    free(failure->key);
    free(failure->value);
    free(failure);
}

/* Called while librdkafka destroys the client, by one of its threads, or when its creation fails. */
static int on_destroy(rd_kafka_t *client, void *opaque) {
    (void)client;
    Link *link = opaque;
    pthread_mutex_lock(&links_lock);
    for (Link **each = &links; *each; each = &(*each)->next)
        if (*each == link) {
            *each = link->next;
            break;
        }
    pthread_mutex_unlock(&links_lock);
    pthread_mutex_lock(&link->lock);
    link_release(link);
    pthread_mutex_unlock(&link->lock);
    link_unreference(link);
    return 0;
}

/* Called by librdkafka in the thread that takes messages, without the GIL. */
static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque) {
    ClientErrors *errors = link_errors;
    if (!errors) {
        error_cb(client, error, reason, opaque);
        return;
    }
    size_t size = strlen(reason) + 1;
    ClientError *made = malloc(sizeof *made + size);
    if (!made) {
        errors->lost = 1;
        return;
    }
    made->next = NULL;
    made->error = error;
    memcpy(made->reason, reason, size);
    if (errors->last) errors->last->next = made;
    else errors->first = made;
    errors->last = made;
}

/* Return the client's error callback; NULL where there is none. */
static error_cb_t *find_error_cb(const rd_kafka_conf_t *conf) {
    char text[64];
    size_t size = sizeof text;
    void *found = NULL;
    if (librdkafka.conf_get(conf, "error_cb", text, &size) != CONF_OK || sscanf(text, "%p", &found) != 1) return NULL;
    return (error_cb_t *)found;
}

/* Put `on_error` before the callback of confluent-kafka. `conf` is that of the client, which reads it later. */
static int lead_errors(const rd_kafka_conf_t *conf) {
    error_cb_t *found = find_error_cb(conf), *none = NULL;
    if (!found || (!atomic_compare_exchange_strong(&error_cb, &none, found) && none != found)) return 0;
    librdkafka.conf_set_error_cb((rd_kafka_conf_t *)conf, on_error);
    return find_error_cb(conf) == on_error;
}

/* Called by rd_kafka_new, when the client can do nothing else yet. */
static int on_new(rd_kafka_t *client, const rd_kafka_conf_t *conf, void *opaque, char *text, size_t size) {
    (void)opaque, (void)text, (void)size;
    if (librdkafka.type(client) == CLIENT_CONSUMER && !lead_errors(conf)) return ERROR_FAIL;
    Link *link = calloc(1, sizeof *link);
    if (!link) return ERROR_FAIL;
    pthread_mutex_init(&link->lock, NULL);
    pthread_mutex_init(&link->failures_lock, NULL);
    link->client = client;
    link->references = 1;
    link->number = ++last_number;
    /* Without on_destroy the link would outlive the client. */
    if (librdkafka.interceptor_add_on_destroy(client, NAME, on_destroy, link)) {
        free_link(link);
        return ERROR_FAIL;
    }
    /* Not the link, because reports also come once the link is freed. */
    if (librdkafka.interceptor_add_on_acknowledgement(client, NAME, on_acknowledgement, (void *)link->number)) return ERROR_FAIL;
    pthread_mutex_lock(&links_lock);
    link->next = links;
    links = link;
    pthread_mutex_unlock(&links_lock);
    return 0;
}

/* The entry point of a plug-in, called for each configuration that names it. */
__attribute__((visibility("default"))) int conf_init(rd_kafka_conf_t *conf, void **opaque, char *text, size_t size);

int conf_init(rd_kafka_conf_t *conf, void **opaque, char *text, size_t size) {
    *opaque = NULL;
    if (librdkafka_loaded) return librdkafka.conf_interceptor_add_on_new(conf, NAME, on_new, NULL);
    if (size) snprintf(text, size, "streamkit._native is not loaded");
    return ERROR_FAIL;
}

Link *link_attach(PyObject *client, int type) {
    Link *found = NULL;
    if (librdkafka_loaded) {
        pthread_mutex_lock(&links_lock);
        /* A link is in the list only while its client exists. */
        for (Link *each = links; each && !found; each = each->next)
            if (!each->attached && librdkafka.opaque(each->client) == client && librdkafka.type(each->client) == type) {
                each->references++;
                each->attached = 1;
                found = each;
            }
        pthread_mutex_unlock(&links_lock);
    }
    if (!found) PyErr_SetString(PyExc_LookupError, "no client of librdkafka belongs to this object");
    return found;
}

PyObject *headers_to_python(const rd_kafka_headers_t *headers) {
    size_t count = headers ? librdkafka.header_cnt(headers) : 0;
    if (!count) Py_RETURN_NONE;
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        const char *name;
        const void *value;
        size_t size;
        if (librdkafka.header_get_all(headers, i, &name, &value, &size)) {
            Py_CLEAR(list);
            PyErr_SetString(PyExc_RuntimeError, "a header can't be read");
            break;
        }
        /* As Java does (Utils.utf8), where a name is no UTF-8. */
        PyObject *text = PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace");
        PyObject *bytes = value ? PyBytes_FromStringAndSize(value, (Py_ssize_t)size) : Py_NewRef(Py_None);
        PyObject *pair = text && bytes ? PyTuple_Pack(2, text, bytes) : NULL;
        Py_XDECREF(text);
        Py_XDECREF(bytes);
        if (!pair) Py_CLEAR(list);
        else PyList_SET_ITEM(list, (Py_ssize_t)i, pair);
    }
    return list;
}
