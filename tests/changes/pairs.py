"""Pairs of topologies: an old version, what is edited, and what `diff` has to find.

Findings are written `verdict: subject name`; those that are safe are left out, but for what `notes` has words of.
"""

from __future__ import annotations

from tests.changes.pairs_of_names import NAMES
from tests.changes.pairs_of_stores import STORES_AND_ROWS
from tests.changes.pairs_of_tasks import TASKS

PAIRS = [*NAMES, *TASKS, *STORES_AND_ROWS]
