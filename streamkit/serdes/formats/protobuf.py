"""Protocol Buffers: .proto files, compiled by grpcio-tools when the serde is made."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING

from streamkit.errors import SerdeError
from streamkit.expressions.types import BOOLEAN, BYTES, INTEGER, NUMBER, TEXT, ListOf, MapOf, Record, Type
from streamkit.record import Key, Value
from streamkit.serdes.plain import shown
from streamkit.serdes.registry import Part, Read, Schema, read_file
from streamkit.serdes.schema_serde import SchemaSerde
from streamkit.serdes.size import check_size, check_value
from streamkit.suggestions import did_you_mean

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

_FLOAT = Struct("<f")
_IMPORT = re.compile(r'\bimport\s+(?:public\s+|weak\s+)?"([^"]+)"\s*;')
_BUNDLED = "google/protobuf/"
_MAIN = "schema.proto"


class ProtobufSchema(Schema):
    """A message of a .proto file.

    Values are objects whose names are the fields of the .proto file. Every field is present; an absent message or `optional`
    field is None. An enum is its name, a map is an object, and bytes are bytes.
    """

    kind = "PROTOBUF"
    form = "protobuf"
    extra = "protobuf"

    def prepare(self) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
            from grpc_tools import protoc
        except ImportError as error:
            raise self.missing(error) from error
        include = Path(protoc.__file__).parent / "_proto"
        files = descriptor_pb2.FileDescriptorSet.FromString(_compiled(self.parts, self.text, include))
        # A separate pool for each serde, because two topologies may have different messages with the same name.
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        self._file = pool.FindFileByName(_MAIN)
        self._class = message_factory.GetMessageClass(self._message())
        self.name = self._class.DESCRIPTOR.full_name
        self.type = _type(self._class.DESCRIPTOR, {})

    def _message(self) -> Descriptor:
        messages = self._file.message_types_by_name
        wanted = self.message or next(iter(messages), "")
        inside = wanted.removeprefix(f"{self._file.package}.") if self._file.package else wanted
        message: Descriptor | None = None
        for step in inside.split("."):
            message = (messages if message is None else message.nested_types_by_name).get(step)
            if message is None:
                raise SerdeError(f"there is no message {wanted!r}; it has: {', '.join(messages) or 'none'}")
        return message

    @classmethod
    def read_parts(cls, path: Path, text: str, references: list[str], folder: str) -> tuple[Part, ...]:
        """Return the imported files that are beside the schema file."""
        parts: dict[str, Part] = {}

        def add(source: str) -> None:
            for name in _IMPORT.findall(source):
                # The compiler reports missing files, because it can distinguish an import from a comment.
                if name not in parts and not name.startswith(_BUNDLED) and (path.parent / name).is_file():
                    imported = read_file(cls.form, name, str(path.parent))[1]
                    add(imported)
                    parts[name] = Part(name, imported)

        add(text)
        return tuple(parts.values())

    def needed_by(self, text: str) -> list[str]:
        imported = _IMPORT.findall(text)
        return [part.name for part in self.parts if part.name in imported]

    def encode(self, value: Value) -> bytes:
        check_value(value)
        message = self._class()
        try:
            _fill(message, value)
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
            reason = error.args[0] if isinstance(error, KeyError) and error.args else error
            raise SerdeError(f"the value does not fit {message.DESCRIPTOR.name}: {reason}") from error
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            raise SerdeError(
                f"the value does not fit {message.DESCRIPTOR.name}: it has no {missing}, which is required"
            )
        data: bytes = message.SerializeToString(deterministic=True)
        return check_size(data)

    def reader(self, written: Schema) -> Read:
        make = self._class

        def decode(data: bytes, start: int) -> Value:
            message = make()
            try:
                message.ParseFromString(data[start:] if start else data)
            except Exception as error:
                raise SerdeError(f"the bytes are not a {message.DESCRIPTOR.name}: {error}") from error
            return _read(message)

        return decode

    def framed_reader(self, written: Schema) -> Read:
        """Return the decoder of data that begin with the path of the message's type in the writer's schema."""
        assert isinstance(written, ProtobufSchema)
        plain, ours = self.reader(written), self._class.DESCRIPTOR
        good = {written.lead} if written == self else set()

        def decode(data: bytes, start: int) -> Value:
            end = start + 1 if data[start : start + 1] == b"\0" else _numbers(data, start)[1]
            path = data[start:end]
            if path not in good:
                theirs = written.message_at(_path(path))
                if theirs.full_name != ours.full_name:
                    raise SerdeError(f"the record is a {theirs.full_name}, not a {ours.full_name}")
                misread = next(_misread(theirs, ours, set()), None)
                if misread is not None:
                    raise SerdeError(f"the record was written with another schema: {misread}")
                good.add(path)
            return plain(data, end)

        return decode

    def message_at(self, path: list[int]) -> Descriptor:
        """Return the message at a path of indices. Raises SerdeError if there is none."""
        try:
            message: Descriptor = list(self._file.message_types_by_name.values())[path[0]]
            for index in path[1:]:
                message = message.nested_types[index]
            return message
        except IndexError as error:
            raise SerdeError(f"the writer's schema has no message at {path}") from error

    @property
    def lead(self) -> bytes:
        """The path of the message's type: the number of indices and the indices, as zigzag varints; a single 0 for the first message."""
        path: list[int] = []
        message: Descriptor | None = self._class.DESCRIPTOR
        while message is not None:
            outer = message.containing_type
            siblings = self._file.message_types_by_name.values() if outer is None else outer.nested_types
            path.insert(0, [sibling.full_name for sibling in siblings].index(message.full_name))
            message = outer
        return b"\0" if path == [0] else b"".join(_varint(number << 1) for number in (len(path), *path))


@lru_cache(maxsize=128)
def _compiled(parts: tuple[Part, ...], text: str, include: Path) -> bytes:
    """Return the descriptors of a schema and of all its imports.

    Cached, because the compiler is a process, and several topics, or copies of a plan, may have the same schema.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, source in (*parts, Part(_MAIN, text)):
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source, encoding="utf-8")
        target = Path(folder, "out")
        arguments = [f"-I{folder}", f"-I{include}", "--include_imports", f"--descriptor_set_out={target}", _MAIN]
        # In another process, because the compiler writes its errors to the stderr of its process.
        done = subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            output = [line.removeprefix(f"{folder}/") for line in done.stderr.splitlines()]
            first = next((line for line in output if ": warning:" not in line), "it does not compile")
            raise SerdeError(f"not a Protobuf schema: {first.removeprefix(f'{_MAIN}:')}")
        return target.read_bytes()


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
    return bytes(data)


def _numbers(data: bytes, start: int) -> tuple[list[int], int]:
    """Return the numbers of a path and the offset of its end."""
    numbers: list[int] = []
    while not numbers or len(numbers) <= numbers[0]:
        number = shift = 0
        while True:
            if start >= len(data) or shift > 28:
                raise SerdeError("the record breaks off in the path of its message's type")
            number |= (data[start] & 127) << shift
            shift, start = shift + 7, start + 1
            if data[start - 1] < 128:
                break
        numbers.append(number >> 1)
    return numbers, start


def _path(data: bytes) -> list[int]:
    return _numbers(data, 0)[0][1:] or [0]


_TYPES = (
    "", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message", "bytes",
    "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
"""The types of fields, by their numbers in descriptors."""
_WIDER = {
    "bool": ("int32", "uint32", "int64", "uint64"),
    "enum": ("int32", "int64"),
    "int32": ("int64", "enum"),
    "uint32": ("int64", "uint64"),
    "sint32": ("sint64",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""Other types as which a reader gets the same values; text that is no UTF-8 is refused."""


def _misread(theirs: Descriptor, ours: Descriptor, seen: set[tuple[str, str]]) -> Iterator[str]:
    """Yield the fields that both versions of a message have, but of which this one would read other values, or none.

    Protobuf takes a field of another type for an unknown one, cuts numbers, and keeps the last item of a list.
    """
    seen.add((theirs.full_name, ours.full_name))
    for field in ours.fields:
        written = theirs.fields_by_number.get(field.number)
        if written is None:
            continue
        name, kinds = f"{ours.name}.{field.name}", (_TYPES[written.type], _TYPES[field.type])
        if written.is_repeated and not field.is_repeated:
            yield f"{name} is a list there, not here"
        elif kinds[0] != kinds[1] and kinds[1] not in _WIDER.get(kinds[0], ()):
            yield f"{name} is {kinds[0]} there, {kinds[1]} here"
        elif kinds == ("message", "message"):
            if _is_map(written) != _is_map(field):
                yield f"{name} is a map only on one side"
            elif (written.message_type.full_name, field.message_type.full_name) not in seen:
                yield from _misread(written.message_type, field.message_type, seen)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _read(message: Message) -> dict[str, Value]:
    result: dict[str, Value] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            result[field.name] = {key: _read_one(inner, value[key]) for key in value}
        elif field.is_repeated:
            result[field.name] = [_read_one(field, item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            result[field.name] = None
        else:
            result[field.name] = _read_one(field, value)
    return result


def _read_one(field: FieldDescriptor, value: Value) -> Value:
    if field.message_type is not None:
        return _read(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    return value


def _fill(message: Message, value: Value) -> None:
    if not isinstance(value, dict):
        raise TypeError(f"an object is expected, not {type(value).__name__}")
    fields = message.DESCRIPTOR.fields_by_name
    for name, item in value.items():
        if name not in fields:
            raise KeyError(f"{message.DESCRIPTOR.name} has no field {name!r}{_nearest(name, fields)}")
        if item is None:
            continue
        field, target = fields[name], getattr(message, name)
        group = field.containing_oneof
        if group is not None and (other := message.WhichOneof(group.name)) is not None:
            # The library would keep the last one, so the order of the object's fields would decide.
            raise ValueError(
                f"{name!r} and {other!r} are both set; at most one field of the oneof {group.name} may be set, and the others must be null"
            )
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            keys = field.message_type.fields_by_name["key"]
            for key, mapped in item.items():
                if inner.message_type is not None:
                    _fill(target[_scalar(keys, key)], mapped)
                else:
                    target[_scalar(keys, key)] = _scalar(inner, mapped)
        elif field.is_repeated:
            if not isinstance(item, (list, tuple)):
                raise _unfit(field, "a list", item)
            for element in item:
                if field.message_type is not None:
                    _fill(target.add(), element)
                else:
                    target.append(_scalar(field, element))
        elif field.message_type is not None:
            target.SetInParent()
            _fill(target, item)
        else:
            setattr(message, name, _scalar(field, item))


def _scalar(field: FieldDescriptor, value: Value) -> Value:
    """Return a value in the form that the library accepts.

    Raises TypeError or KeyError for values that the library would silently convert.
    """
    check = _CHECKS.get(field.type)
    return value if check is None else check(field, value)


def _double(field: FieldDescriptor, value: Value) -> Value:
    if value.__class__ is bool:
        raise _unfit(field, "a number", value)
    return value


def _float(field: FieldDescriptor, value: Value) -> Value:
    try:
        _FLOAT.pack(_double(field, value))
    except (OverflowError, StructError) as error:
        raise _unfit(field, "a number within the range of a float", value) from error
    return value


def _boolean(field: FieldDescriptor, value: Value) -> Value:
    if value.__class__ is not bool:
        raise _unfit(field, "true or false", value)
    return value


def _string(field: FieldDescriptor, value: Value) -> Value:
    if not isinstance(value, str):
        raise _unfit(field, "text", value)
    return value


def _enum(field: FieldDescriptor, value: Value) -> Value:
    if not isinstance(value, str):
        return value
    names = field.enum_type.values_by_name
    if value not in names:
        raise KeyError(f"{field.enum_type.name} has no value {value!r}{_nearest(value, names)}")
    return names[value].number


_CHECKS: dict[int, Callable[[FieldDescriptor, Value], Value]] = {
    1: _double,
    2: _float,
    8: _boolean,
    9: _string,
    14: _enum,
}
"""By the number of a type (FieldDescriptorProto.Type); the library itself checks the others."""


def _unfit(field: FieldDescriptor, expected: str, value: Value) -> TypeError:
    return TypeError(f"{field.full_name} must be {expected}, not {shown(value, 80)}")


def _nearest(name: Key, known: Iterable[str]) -> str:
    return did_you_mean(str(name), known, f"it has {', '.join(known)}")


def _type(message: Descriptor, seen: dict[str, Record]) -> Type:
    """Return the type of a message's value. `seen`: the types so far, even unfinished ones, as messages may contain themselves."""
    if message.full_name not in seen:
        seen[message.full_name] = record = Record(message.full_name, {})
        for field in message.fields:
            if _is_map(field):
                field_type: Type = MapOf(_field_type(field.message_type.fields_by_name["value"], seen))
            else:
                field_type = _field_type(field, seen)
                field_type = ListOf(field_type) if field.is_repeated else field_type
            record.fields[field.name] = field_type
    return seen[message.full_name]


def _field_type(field: FieldDescriptor, seen: dict[str, Record]) -> Type:
    if field.message_type is not None:
        return _type(field.message_type, seen)
    kinds = {
        field.CPPTYPE_STRING: BYTES if field.type == field.TYPE_BYTES else TEXT,
        field.CPPTYPE_BOOL: BOOLEAN,
        field.CPPTYPE_ENUM: TEXT,
        field.CPPTYPE_FLOAT: NUMBER,
        field.CPPTYPE_DOUBLE: NUMBER,
    }
    return kinds.get(field.cpp_type, INTEGER)


make_protobuf = partial(SchemaSerde, ProtobufSchema)
"""Return the serde of `{protobuf: FILE}` or `{protobuf: {…}}`. Raises SerdeError."""
