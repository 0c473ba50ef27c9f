/* Links to clients of librdkafka that confluent-kafka has created.
 *
 * The extension is a plug-in of librdkafka (`plugin.library.paths`): each client that is created with it calls an interceptor,
 * which makes a link. Python finds the link of a confluent_kafka object by the client's opaque pointer, which is that object.
 * So neither the layout of confluent-kafka's objects nor that of librdkafka's is assumed.
 */
#ifndef STREAMKIT_LINK_H
#define STREAMKIT_LINK_H

#include "librdkafka.h"

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>

/* A record that was not delivered: copies, because librdkafka frees the message. */
typedef struct Failure {
    struct Failure *next;
    char *topic;
    char *key, *value; /* NULL: none */
    size_t key_size, value_size;
    int64_t timestamp; /* -1: none */
    int32_t partition;
    rd_kafka_headers_t *headers;
    int error;
} Failure;

typedef struct {
    char *name;
    rd_kafka_topic_t *topic;
} Topic;

typedef struct Link {
    struct Link *next;
    int references; /* guarded by the lock of all links */
    int attached;   /* guarded likewise */
    uintptr_t number; /* of this link only, while the process runs */
    /* Held by each call that uses the client, and by its destruction. A thread that holds it never waits for the GIL. */
    pthread_mutex_t lock;
    rd_kafka_t *client;      /* NULL once the client is destroyed */
    rd_kafka_queue_t *queue; /* consumers: of the partitions that are forwarded */
    Topic *topics;           /* producers: the topics written to */
    size_t topic_count;
    pthread_mutex_t failures_lock;
    Failure *first_failure, *last_failure;
    int failure_lost; /* there was no memory for one */
} Link;

/* Return the link of a confluent_kafka object, with a reference; NULL with an exception set where there is none. */
Link *link_attach(PyObject *client, int type);
/* Free what the link has of the client, so that the client can be destroyed. The caller holds the link's lock. */
void link_release(Link *link);
/* Do so with the lock; the caller holds the GIL, which is released meanwhile. */
void link_close(Link *link);
void link_unreference(Link *link);

/* Whether this thread is inside rd_kafka_producev, which returns the errors of its own record. */
extern _Thread_local int link_producing;

/* An error of a client, about no message. */
typedef struct ClientError {
    struct ClientError *next;
    int error;
    char reason[];
} ClientError;

typedef struct {
    ClientError *first, *last;
    int lost; /* there was no memory for one */
} ClientErrors;

/* Where errors go that librdkafka reports by a callback to this thread; NULL: to the callback of confluent-kafka.
 *
 * Some errors of partitions, such as one that does not exist, lie between messages and are reported so. The callback of
 * confluent-kafka ends the process where it is called outside of a call of confluent-kafka. */
extern _Thread_local ClientErrors *link_errors;

/* Take the records that were not delivered; `lost`: whether there was no memory for another one. */
Failure *link_take_failures(Link *link, int *lost);
void link_free_failure(Failure *failure);

/* Return headers as a list of (name, value), None for no headers; NULL with an exception set. */
PyObject *headers_to_python(const rd_kafka_headers_t *headers);

int consumer_register(PyObject *module);
int producer_register(PyObject *module);

#endif
