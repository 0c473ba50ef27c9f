"""Protocol Buffers by a .proto file, compiled when the serde is made; plain messages without a registry's framing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from streamkit.errors import SerdeError
from streamkit.serdes.files import SchemaSerde


class ProtobufSerde(SchemaSerde):
    """`{protobuf: FILE}` or `{protobuf: FILE, message: NAME}` (default: the file's first message).

    Values are objects with the fields' names of the .proto file; every field is there, absent messages and `optional`
    fields as None; enums are their names, maps are objects, bytes are bytes.
    """

    form = "protobuf"
    extra = "protobuf"

    def prepare(self, path: Path) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
            from grpc_tools import protoc
        except ImportError as error:
            raise self.missing(error) from error
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "out")
            include = Path(protoc.__file__).parent / "_proto"
            code = protoc.main(
                [
                    "",
                    f"-I{path.parent}",
                    f"-I{include}",
                    "--include_imports",
                    f"--descriptor_set_out={target}",
                    str(path),
                ]
            )
            if code != 0:
                raise SerdeError(f"serde protobuf: {path.name} does not compile (protoc says above why)")
            files = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())
        # A pool of its own: two topologies may each have a message of one name.
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)  # type: ignore[attr-defined]
        main = files.file[-1]
        name = self.spec.get("message") or (main.message_type[0].name if main.message_type else "")
        try:
            full = name if not main.package or name.startswith(main.package + ".") else f"{main.package}.{name}"
            self._class = message_factory.GetMessageClass(pool.FindMessageTypeByName(full))
        except KeyError:
            known = ", ".join(each.name for each in main.message_type)
            raise SerdeError(f"serde protobuf: {path.name} has no message {name!r}; it has: {known}") from None

    def encode(self, value: Any) -> bytes:
        message = self._class()
        try:
            _fill(message, value)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise SerdeError(f"serde protobuf: the value does not fit {message.DESCRIPTOR.name}: {error}") from error
        return message.SerializeToString(deterministic=True)

    def decode(self, data: bytes) -> Any:
        message = self._class()
        try:
            message.ParseFromString(data)
        except Exception as error:
            raise SerdeError(f"serde protobuf: the bytes are no {message.DESCRIPTOR.name}: {error}") from error
        return _read(message)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _read(message: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
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


def _read_one(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _read(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    return value


def _fill(message: Any, value: Any) -> None:
    if not isinstance(value, dict):
        raise TypeError(f"an object is expected, not {type(value).__name__}")
    fields = message.DESCRIPTOR.fields_by_name
    for name, item in value.items():
        if name not in fields:
            raise KeyError(f"there is no field {name!r}")
        if item is None:
            continue
        field, target = fields[name], getattr(message, name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            for key, each in item.items():
                if inner.message_type is not None:
                    _fill(target[key], each)
                else:
                    target[key] = _scalar(inner, each)
        elif field.is_repeated:
            for each in item:
                if field.message_type is not None:
                    _fill(target.add(), each)
                else:
                    target.append(_scalar(field, each))
        elif field.message_type is not None:
            target.SetInParent()
            _fill(target, item)
        else:
            setattr(message, name, _scalar(field, item))


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is not None and isinstance(value, str):
        return field.enum_type.values_by_name[value].number
    return value
