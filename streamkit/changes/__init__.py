"""What changes between two versions of an application, and what each change does to its state."""

from __future__ import annotations

from streamkit.changes.compare import compare
from streamkit.changes.finding import Finding, Verdict
from streamkit.changes.form import Form
from streamkit.changes.of_describe import parse_describe
from streamkit.changes.of_plan import form_of

__all__ = ["Finding", "Form", "Verdict", "compare", "form_of", "parse_describe"]
