"""A try at starting every task before anything is submitted: what can't start, or asks for a clock, shows here."""

from __future__ import annotations

import pickle

from streamkit.runtime.spark.globals import GlobalTables, Inline
from streamkit.runtime.spark.job import Job
from streamkit.runtime.spark.spill import SpillingStores
from streamkit.runtime.spark.worker import StageWork, load, new_task


def try_tasks(job: Job) -> None:
    """Make a task of each sub-topology with its processors, and close it. Raises ProcessingError, naming the step."""
    nothing = Inline(pickle.dumps([]))
    for stage in job.stages:
        tables = GlobalTables(f"trial of {job.plan.application}", nothing, job.partitions)
        work = StageWork(job.pickled, stage, job.layout.sources, job.wanted(stage), tables)
        loaded = load(work.plan)
        stores = SpillingStores(loaded.plan, work.spill_bytes)
        try:
            for index in stage.subs:
                task = new_task(loaded, work, index, 0, stores)
                try:
                    task.start({})
                finally:
                    task.close()
        finally:
            stores.close()
