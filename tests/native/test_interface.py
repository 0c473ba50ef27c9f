"""The extension's own declarations of librdkafka against the header of librdkafka itself."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import confluent_kafka
import pytest

from tests.requirements import header

SOURCES = Path(__file__).parents[2] / "streamkit" / "native"
HEADER = "librdkafka/rdkafka.h"
NUMBERS = {
    "CLIENT_PRODUCER": "RD_KAFKA_PRODUCER",
    "CLIENT_CONSUMER": "RD_KAFKA_CONSUMER",
    "ERROR_BAD_MESSAGE": "RD_KAFKA_RESP_ERR__BAD_MSG",
    "ERROR_FAIL": "RD_KAFKA_RESP_ERR__FAIL",
    "ERROR_INVALID_ARGUMENT": "RD_KAFKA_RESP_ERR__INVALID_ARG",
    "ERROR_NO_ENTRY": "RD_KAFKA_RESP_ERR__NOENT",
    "ERROR_PURGE_INFLIGHT": "RD_KAFKA_RESP_ERR__PURGE_INFLIGHT",
    "ERROR_PURGE_QUEUE": "RD_KAFKA_RESP_ERR__PURGE_QUEUE",
    "CONF_OK": "RD_KAFKA_CONF_OK",
    "TIMESTAMP_NOT_AVAILABLE": "RD_KAFKA_TIMESTAMP_NOT_AVAILABLE",
    "MESSAGE_COPY": "RD_KAFKA_MSG_F_COPY",
    "V_END": "RD_KAFKA_VTYPE_END",
    "V_RKT": "RD_KAFKA_VTYPE_RKT",
    "V_PARTITION": "RD_KAFKA_VTYPE_PARTITION",
    "V_VALUE": "RD_KAFKA_VTYPE_VALUE",
    "V_KEY": "RD_KAFKA_VTYPE_KEY",
    "V_MSGFLAGS": "RD_KAFKA_VTYPE_MSGFLAGS",
    "V_TIMESTAMP": "RD_KAFKA_VTYPE_TIMESTAMP",
    "V_HEADERS": "RD_KAFKA_VTYPE_HEADERS",
}
"""Each number that the extension declares, and its name in librdkafka."""
FIELDS = ["err", "rkt", "partition", "payload", "len", "key", "key_len", "offset", "_private"]
PROGRAM = """
#include <{header}>
#include "ours.h"

#define FIELD(name) \
    _Static_assert(offsetof(ours_message_t, name) == offsetof(rd_kafka_message_t, name), "place of " #name); \
    _Static_assert(sizeof ((ours_message_t *)0)->name == sizeof ((rd_kafka_message_t *)0)->name, "size of " #name);
{fields}
_Static_assert(sizeof(ours_message_t) == sizeof(rd_kafka_message_t), "size of a message");
{numbers}
#define FUNCTION(result, name, arguments) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&rd_kafka_##name), result (*) arguments), "type of " #name);
LIBRDKAFKA_FUNCTIONS(FUNCTION)
"""
# In C an enumeration without negative numbers is `unsigned`, which is passed and returned as `int` is.
UNSIGNED = {
    "F(int, type, (": "F(rd_kafka_type_t, type, (",
    "(const rd_kafka_message_t *, int *)": "(const rd_kafka_message_t *, rd_kafka_timestamp_type_t *)",
}


def declared() -> str:
    return (SOURCES / "librdkafka.h").read_text()


def problems(text: str, folder: Path) -> str:
    """Compile the declarations of the extension beside librdkafka's header; return what the compiler reports."""
    header(HEADER)
    for ours, theirs in UNSIGNED.items():
        assert ours in text
        text = text.replace(ours, theirs)
    # The other types have the same names, and C takes them for the same only if they are.
    (folder / "ours.h").write_text(text.replace("} rd_kafka_message_t;", "} ours_message_t;"))
    fields = "\n".join(f"FIELD({name})" for name in FIELDS)
    numbers = "\n".join(f'_Static_assert({ours} == (int){theirs}, "{ours}");' for ours, theirs in NUMBERS.items())
    (folder / "compared.c").write_text(PROGRAM.format(header=HEADER, fields=fields, numbers=numbers))
    command = ["cc", "-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", str(folder / "compared.c")]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_every_number_of_the_extension_is_compared() -> None:
    assert sorted(re.findall(r"\b([A-Z][A-Z_]+) = -?\w+", declared())) == sorted(NUMBERS)


def test_structures_numbers_and_functions_are_those_of_librdkafka(tmp_path: Path) -> None:
    assert problems(declared(), tmp_path) == ""


@pytest.mark.parametrize(
    ("ours", "wrong", "reported"),
    [
        ("ERROR_NO_ENTRY = -156", "ERROR_NO_ENTRY = -157", "ERROR_NO_ENTRY"),
        ("V_HEADERS = 10", "V_HEADERS = 9", "V_HEADERS"),
        ("    size_t len;\n", "    int32_t len;\n", "size of len"),
        ("    int64_t offset;\n    void *_private;", "    void *_private;\n    int64_t offset;", "place of offset"),
        ("queue_destroy, (rd_kafka_queue_t *)", "queue_destroy, (rd_kafka_topic_t *)", "type of queue_destroy"),
        ("F(size_t, header_cnt,", "F(int, header_cnt,", "type of header_cnt"),
        (
            "(rd_kafka_queue_t *, int, rd_kafka_m",
            "(rd_kafka_queue_t *, int64_t, rd_kafka_m",
            "type of consume_batch_queue",
        ),
    ],
)
def test_a_declaration_that_differs_is_found(ours: str, wrong: str, reported: str, tmp_path: Path) -> None:
    changed = declared().replace(ours, wrong)
    assert changed != declared()
    assert reported in problems(changed, tmp_path)


@pytest.mark.process
def test_the_header_is_not_newer_than_the_library_that_is_used() -> None:
    # Later releases of librdkafka keep functions and numbers (soname 1), so that an older header is proof for a newer library.
    number = re.search(r"define RD_KAFKA_VERSION\s+(0x[0-9a-f]+)", header(HEADER).read_text())
    assert number is not None
    assert int(number[1], 16) <= confluent_kafka.libversion()[1]
