/* A thread that hands rows over to librdkafka, while Python works on the next ones. */
#ifndef STREAMKIT_SENDER_H
#define STREAMKIT_SENDER_H

#include "link.h"

/* A row as librdkafka takes it; the bytes belong to the row in Python, which the caller keeps. */
typedef struct {
    Py_ssize_t topic; /* its place in link->topics */
    const char *key, *value;
    Py_ssize_t key_size, value_size;
    int64_t timestamp;
    int32_t partition;
    rd_kafka_headers_t *headers;
} Row;

/* Hand rows over, up to the first one that librdkafka refuses, and free the headers of the others. Return how many it took,
 * or -1 where the client is closed. */
Py_ssize_t produce_rows(Link *link, Row *rows, Py_ssize_t count, int *error);

typedef struct Sender Sender;

/* Start a thread; NULL where there can be none. */
Sender *sender_start(Link *link);
/* Give it rows, which it frees; it has none. */
void sender_give(Sender *sender, Row *rows, Py_ssize_t count);
/* Wait until it has none. Return how many librdkafka took, -1 where the client is closed; `error`: that of the next row, or 0. */
Py_ssize_t sender_wait(Sender *sender, int *error);
int sender_is_busy(Sender *sender);
/* End the thread, after the rows that it has. */
void sender_end(Sender *sender);

#endif
