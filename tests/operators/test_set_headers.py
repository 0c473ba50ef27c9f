"""`set_headers`: what each value of an expression leaves."""

from __future__ import annotations

from streamkit.operators.steps.stateless.set_headers import with_headers


def test_none_leaves_a_header_without_a_value() -> None:
    assert with_headers([("h", b"old"), ("i", b"1")], ("h",), (("h", None),)) == [("i", b"1"), ("h", None)]


def test_a_header_that_is_removed_leaves_none() -> None:
    assert with_headers([("h", b"old")], ("h",), ()) is None
