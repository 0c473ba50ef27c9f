"""A run whose copy to its final folder was cut off is completed from both folders, or refused: never counted with a file less."""

from __future__ import annotations

import pytest

from streamkit.errors import TransportError
from streamkit.runtime.spark.checkpoint.manifest import Output, RunOutput, WrittenFile
from streamkit.runtime.spark.checkpoint.run_outputs import _complete

RUN = RunOutput(3, "run=3", "_staged/run=3", (WrittenFile("a", 1), WrittenFile("b", 2)))
STAGED, FINAL = "/out/_staged/run=3", "/out/run=3"


class Store:
    """The files of an object store, by folder: name and size."""

    def __init__(self, staged: dict[str, int], final: dict[str, int]):
        self.folders = {STAGED: staged, FINAL: final}

    def files_in(self, folder: str) -> dict[str, int]:
        return dict(self.folders[folder])

    def rename(self, source: str, target: str) -> bool:
        (folder, _, name), (new_folder, _, new_name) = source.rpartition("/"), target.rpartition("/")
        self.folders[new_folder][new_name] = self.folders[folder].pop(name)
        return True

    def delete(self, folder: str) -> None:
        del self.folders[folder]


@pytest.mark.parametrize("moved", [{}, {"a": 1}, {"a": 1, "b": 2}])
def test_the_rest_is_moved(moved: dict[str, int]) -> None:
    store = Store({"a": 1, "b": 2}, moved)
    _complete(store, "out", Output("/out", "parquet"), RUN)  # type: ignore[arg-type]
    assert store.folders == {FINAL: {"a": 1, "b": 2}}


@pytest.mark.parametrize(("waiting", "moved"), [({"a": 1}, {}), ({"a": 1, "b": 2}, {"c": 1}), ({"b": 2}, {"a": 9})])
def test_what_is_not_this_run_is_refused(waiting: dict[str, int], moved: dict[str, int]) -> None:
    store = Store(waiting, moved)
    with pytest.raises(TransportError, match="is not what run 3 wrote"):
        _complete(store, "out", Output("/out", "parquet"), RUN)  # type: ignore[arg-type]
    # Nothing is moved or deleted.
    assert store.folders == {STAGED: waiting, FINAL: moved}
