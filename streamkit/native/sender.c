#include "sender.h"

#include <signal.h>
#include <stdlib.h>

/* Rows that are handed over under one lock of the client. */
#define CHUNK 1024

struct Sender {
    Link *link; /* which the owner of the sender keeps */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    Row *rows; /* NULL: none */
    Py_ssize_t count, done;
    int error, ending;
};

Py_ssize_t produce_rows(Link *link, Row *rows, Py_ssize_t count, int *error) {
    Py_ssize_t done = 0;
    pthread_mutex_lock(&link->lock);
    link_producing = 1;
    for (; link->client && done < count; done++) {
        Row *row = &rows[done];
        *error = librdkafka.producev(link->client, V_MSGFLAGS, MESSAGE_COPY, V_RKT, link->topics[row->topic].topic,
                                     V_PARTITION, row->partition, V_KEY, row->key, (size_t)row->key_size, V_VALUE, row->value,
                                     (size_t)row->value_size, V_TIMESTAMP, row->timestamp, V_HEADERS, row->headers, V_END);
        if (*error) break;
        row->headers = NULL; /* librdkafka's now */
    }
    link_producing = 0;
    int closed = !link->client;
    pthread_mutex_unlock(&link->lock);
    for (Py_ssize_t i = done; i < count; i++)
        if (rows[i].headers) librdkafka.headers_destroy(rows[i].headers);
    return closed ? -1 : done;
}

static void hand_over(Sender *sender) {
    Py_ssize_t done = 0;
    int error = 0;
    while (done >= 0 && done < sender->count && !error) {
        Py_ssize_t count = sender->count - done < CHUNK ? sender->count - done : CHUNK;
        Py_ssize_t taken = produce_rows(sender->link, sender->rows + done, count, &error);
        if (taken < 0 || error) {
            for (Py_ssize_t i = done + count; i < sender->count; i++)
                if (sender->rows[i].headers) librdkafka.headers_destroy(sender->rows[i].headers);
        }
        done = taken < 0 ? -1 : done + taken;
    }
    sender->done = done;
    sender->error = error;
}

static void *run(void *given) {
    Sender *sender = given;
    pthread_mutex_lock(&sender->lock);
    for (;;) {
        while (!sender->rows && !sender->ending) pthread_cond_wait(&sender->changed, &sender->lock);
        if (!sender->rows) break;
        pthread_mutex_unlock(&sender->lock);
        hand_over(sender);
        pthread_mutex_lock(&sender->lock);
        free(sender->rows);
        sender->rows = NULL;
        pthread_cond_broadcast(&sender->changed);
    }
    pthread_mutex_unlock(&sender->lock);
    return NULL;
}

Sender *sender_start(Link *link) {
    Sender *sender = calloc(1, sizeof *sender);
    if (!sender) return NULL;
    sender->link = link;
    pthread_mutex_init(&sender->lock, NULL);
    pthread_cond_init(&sender->changed, NULL);
    /* Signals are Python's. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&sender->thread, NULL, run, sender);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        pthread_cond_destroy(&sender->changed);
        pthread_mutex_destroy(&sender->lock);
        free(sender);
        return NULL;
    }
    return sender;
}

void sender_give(Sender *sender, Row *rows, Py_ssize_t count) {
    pthread_mutex_lock(&sender->lock);
    sender->rows = rows;
    sender->count = count;
    pthread_cond_broadcast(&sender->changed);
    pthread_mutex_unlock(&sender->lock);
}

Py_ssize_t sender_wait(Sender *sender, int *error) {
    pthread_mutex_lock(&sender->lock);
    while (sender->rows) pthread_cond_wait(&sender->changed, &sender->lock);
    *error = sender->error;
    Py_ssize_t done = sender->done;
    pthread_mutex_unlock(&sender->lock);
    return done;
}

int sender_is_busy(Sender *sender) {
    pthread_mutex_lock(&sender->lock);
    int busy = sender->rows != NULL;
    pthread_mutex_unlock(&sender->lock);
    return busy;
}

void sender_end(Sender *sender) {
    pthread_mutex_lock(&sender->lock);
    sender->ending = 1;
    pthread_cond_broadcast(&sender->changed);
    pthread_mutex_unlock(&sender->lock);
    pthread_join(sender->thread, NULL);
    pthread_mutex_destroy(&sender->lock);
    pthread_cond_destroy(&sender->changed);
    free(sender);
}
