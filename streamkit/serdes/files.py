"""Schema files that serdes name, and the plain JSON form of what they decode."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

from streamkit.errors import SerdeError
from streamkit.serdes.base import Serde


class SchemaSerde(Serde):
    """A serde of one schema file; picklable by its spec, as compiled schemas are not."""

    form: str
    """The key of the spec, which is the name of the format too."""
    extra: str
    """The extra of the package that brings the format's library."""

    def __init__(self, spec: dict[str, Any], folder: str):
        self.spec = dict(spec)
        self.folder = folder
        self.prepare(self.schema_file())

    def prepare(self, path: Path) -> None:
        """Read the schema. Raises SerdeError."""
        raise NotImplementedError

    def schema_file(self) -> Path:
        """Return the path of the schema file. Raises SerdeError where there is none."""
        target = self.spec[self.form]
        if isinstance(target, dict):
            raise SerdeError(
                f"serde {self.form}: {{subject: …}} needs a schema registry (schema.registry.url), which this version"
                f" doesn't read; name a schema file: {{{self.form}: FILE}}"
            )
        path = Path(os.path.join(self.folder, str(target)))
        if not path.is_file():
            raise SerdeError(f"serde {self.form}: there is no schema file {target!r} beside the topology file")
        return path

    def missing(self, error: ImportError) -> SerdeError:
        """Return the error of an extra that is not installed."""
        return SerdeError(f"serde {self.form} needs more packages: pip install 'streamkit[{self.extra}]' ({error})")

    def __getstate__(self) -> Any:
        return self.spec, self.folder

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaSerde) and (self.spec, self.folder) == (other.spec, other.folder)

    __hash__ = Serde.__hash__

    def to_json(self, value: Any) -> Any:
        return plain(value)

    def from_json(self, data: Any) -> Any:
        return unplain(data)


def plain(value: Any) -> Any:
    """Return the JSON form of decoded data: bytes as {"base64": …}, dates and decimals as text.

    >>> plain({"a": [b"x", 1]})
    {'a': [{'base64': 'eA=='}, 1]}
    """
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def unplain(data: Any) -> Any:
    """Return decoded data of its JSON form. Raises SerdeError for what is not base64."""
    if isinstance(data, dict):
        if set(data) == {"base64"}:
            try:
                return base64.b64decode(data["base64"], validate=True)
            except (ValueError, TypeError) as error:
                raise SerdeError(f"not base64: {data['base64']!r}") from error
        return {name: unplain(item) for name, item in data.items()}
    return [unplain(item) for item in data] if isinstance(data, list) else data
