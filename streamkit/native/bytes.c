/* Work on bytes: a search in the text of JSON, and the hash of foreign keys. */
#include <stdint.h>
#include <string.h>

#include "values.h"

/* Each number beyond 64 bits has so many digits in a row. */
enum { DIGITS = 19 };

static int is_digit(unsigned char byte) { return byte >= '0' && byte <= '9'; }

/* Nineteen digits in a row take every nineteenth byte in: mostly only these are read. */
static int has_digits(const unsigned char *text, Py_ssize_t length) {
    Py_ssize_t last = DIGITS - 1;
    while (last < length) {
        Py_ssize_t first = last;
        while (first > last - DIGITS && is_digit(text[first])) first--;
        if (first == last - DIGITS) return 1;
        last = first + DIGITS;
    }
    return 0;
}

PyObject *bytes_big_number(PyObject *module, PyObject *texts) {
    (void)module;
    if (PyBytes_Check(texts))
        return PyBool_FromLong(has_digits((unsigned char *)PyBytes_AS_STRING(texts), PyBytes_GET_SIZE(texts)));
    PyObject *items = PySequence_Fast(texts, "big_number() takes bytes or a sequence of them");
    if (!items) return NULL;
    int found = 0;
    for (Py_ssize_t number = 0; !found && number < PySequence_Fast_GET_SIZE(items); number++) {
        PyObject *text = PySequence_Fast_GET_ITEM(items, number);
        if (PyBytes_Check(text)) found = has_digits((unsigned char *)PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text));
        else if (text != Py_None) {
            PyErr_SetString(PyExc_TypeError, "big_number() takes bytes or a sequence of them");
            Py_DECREF(items);
            return NULL;
        }
    }
    Py_DECREF(items);
    return PyBool_FromLong(found);
}

static const uint64_t C1 = 0x87C37B91114253D5u, C2 = 0x4CF5AD432745937Fu;

static uint64_t rotate(uint64_t word, int by) { return word << by | word >> (64 - by); }

static uint64_t mix(uint64_t word) {
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCDu;
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53u;
    return word ^ word >> 33;
}

/* Up to eight bytes as a little-endian number. */
static uint64_t word_of(const unsigned char *data, Py_ssize_t length) {
    uint64_t word = 0;
    for (Py_ssize_t at = length - 1; at >= 0; at--) word = word << 8 | data[at];
    return word;
}

static void store(unsigned char *to, uint64_t word) {
    for (int at = 7; at >= 0; at--, word >>= 8) to[at] = (unsigned char)word;
}

PyObject *bytes_murmur3_128(PyObject *module, PyObject *arguments) {
    (void)module;
    Py_buffer buffer;
    unsigned long long seed;
    if (!PyArg_ParseTuple(arguments, "y*K", &buffer, &seed)) return NULL;
    const unsigned char *data = buffer.buf;
    uint64_t high = seed, low = seed, length = (uint64_t)buffer.len;
    Py_ssize_t left = buffer.len;
    for (; left >= 16; left -= 16, data += 16) {
        high ^= rotate(word_of(data, 8) * C1, 31) * C2;
        high = (rotate(high, 27) + low) * 5 + 0x52DCE729;
        low ^= rotate(word_of(data + 8, 8) * C2, 33) * C1;
        low = (rotate(low, 31) + high) * 5 + 0x38495AB5;
    }
    if (left > 8) low ^= rotate(word_of(data + 8, left - 8) * C2, 33) * C1;
    if (left > 0) high ^= rotate(word_of(data, left < 8 ? left : 8) * C1, 31) * C2;
    PyBuffer_Release(&buffer);
    high ^= length;
    low ^= length;
    high += low;
    low += high;
    high = mix(high);
    low = mix(low);
    high += low;
    low += high;
    unsigned char hash[16];
    store(hash, high);
    store(hash + 8, low);
    return PyBytes_FromStringAndSize((char *)hash, sizeof hash);
}
