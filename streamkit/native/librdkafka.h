/* The part of librdkafka's public interface that the extension uses, declared here so that no header package is needed.
 *
 * The functions are those of the library that confluent-kafka has loaded: `librdkafka_load` fills the table. Numbers and
 * structures are part of librdkafka's stable binary interface (soname 1).
 */
#ifndef STREAMKIT_LIBRDKAFKA_H
#define STREAMKIT_LIBRDKAFKA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;

typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

enum { CLIENT_PRODUCER = 0, CLIENT_CONSUMER = 1 };
enum {
    ERROR_BAD_MESSAGE = -199,
    ERROR_FAIL = -196,
    ERROR_INVALID_ARGUMENT = -186,
    ERROR_NO_ENTRY = -156,
    ERROR_PURGE_QUEUE = -152,
    ERROR_PURGE_INFLIGHT = -151
};
enum { CONF_OK = 0 };
enum { TIMESTAMP_NOT_AVAILABLE = 0 };
enum { MESSAGE_COPY = 0x2 };
/* The tags of rd_kafka_producev's arguments. */
enum { V_END = 0, V_RKT = 2, V_PARTITION = 3, V_VALUE = 4, V_KEY = 5, V_MSGFLAGS = 7, V_TIMESTAMP = 8, V_HEADERS = 10 };

typedef int on_new_t(rd_kafka_t *, const rd_kafka_conf_t *, void *, char *, size_t);
typedef void error_cb_t(rd_kafka_t *, int, const char *, void *);
typedef int on_destroy_t(rd_kafka_t *, void *);
typedef int on_acknowledgement_t(rd_kafka_t *, rd_kafka_message_t *, void *);

#define LIBRDKAFKA_FUNCTIONS(F)                                                                              \
    F(const char *, version_str, (void))                                                                     \
    F(void *, opaque, (const rd_kafka_t *))                                                                  \
    F(int, type, (const rd_kafka_t *))                                                                       \
    F(int, conf_get, (const rd_kafka_conf_t *, const char *, char *, size_t *))                              \
    F(void, conf_set_error_cb, (rd_kafka_conf_t *, error_cb_t *))                                            \
    F(int, conf_interceptor_add_on_new, (rd_kafka_conf_t *, const char *, on_new_t *, void *))               \
    F(int, interceptor_add_on_destroy, (rd_kafka_t *, const char *, on_destroy_t *, void *))                 \
    F(int, interceptor_add_on_acknowledgement, (rd_kafka_t *, const char *, on_acknowledgement_t *, void *)) \
    F(rd_kafka_queue_t *, queue_new, (rd_kafka_t *))                                                         \
    F(rd_kafka_queue_t *, queue_get_partition, (rd_kafka_t *, const char *, int32_t))                        \
    F(void, queue_forward, (rd_kafka_queue_t *, rd_kafka_queue_t *))                                         \
    F(void, queue_destroy, (rd_kafka_queue_t *))                                                             \
    F(ssize_t, consume_batch_queue, (rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t))                \
    F(void, message_destroy, (rd_kafka_message_t *))                                                         \
    F(const char *, message_errstr, (const rd_kafka_message_t *))                                            \
    F(int64_t, message_timestamp, (const rd_kafka_message_t *, int *))                                       \
    F(int, message_headers, (const rd_kafka_message_t *, rd_kafka_headers_t **))                             \
    F(size_t, header_cnt, (const rd_kafka_headers_t *))                                                      \
    F(int, header_get, (const rd_kafka_headers_t *, size_t, const char *, const void **, size_t *))          \
    F(int, header_get_all, (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))     \
    F(rd_kafka_headers_t *, headers_new, (size_t))                                                           \
    F(rd_kafka_headers_t *, headers_copy, (const rd_kafka_headers_t *))                                      \
    F(void, headers_destroy, (rd_kafka_headers_t *))                                                         \
    F(int, header_add, (rd_kafka_headers_t *, const char *, ssize_t, const void *, ssize_t))                 \
    F(rd_kafka_topic_t *, topic_new, (rd_kafka_t *, const char *, rd_kafka_topic_conf_t *))                  \
    F(const char *, topic_name, (const rd_kafka_topic_t *))                                                  \
    F(void, topic_destroy, (rd_kafka_topic_t *))                                                             \
    F(int, last_error, (void))                                                                               \
    F(int, producev, (rd_kafka_t *, ...))

typedef struct {
#define FIELD(result, name, arguments) result(*name) arguments;
    LIBRDKAFKA_FUNCTIONS(FIELD)
#undef FIELD
} Librdkafka;

extern Librdkafka librdkafka;
/* Whether `librdkafka` is filled. */
extern int librdkafka_loaded;

/* Fill `librdkafka` from a shared library that is loaded already, or one of its dependencies; return NULL, or what is missing. */
const char *librdkafka_load(const char *path);

#endif
