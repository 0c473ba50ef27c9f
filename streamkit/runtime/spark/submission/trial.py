"""Starts every task once before a job is submitted: a task that can't start, or reads a clock, fails here."""

from __future__ import annotations

import pickle

from streamkit.runtime.spark.stages.job import Job
from streamkit.runtime.spark.workers.globals import GlobalTables, Inline
from streamkit.runtime.spark.workers.spill import SpillingStores
from streamkit.runtime.spark.workers.worker import StageWork, load, new_task


def try_tasks(job: Job) -> None:
    """Make a task of each sub-topology with its processors, and close it. Raises ProcessingError, naming the step."""
    nothing = Inline(pickle.dumps([]))
    for stage in job.stages:
        tables = GlobalTables(f"trial of {job.plan.application}", nothing, job.partitions)
        work = StageWork(job.pickled, stage, job.layout, job.output_spec(stage), tables)
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
