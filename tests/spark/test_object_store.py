"""Jobs on s3a://, with the jars of S3A for the installed PySpark and a server of S3."""

from __future__ import annotations

from tests.spark.table_environment import run_cases, s3_environment


def test_on_s3() -> None:
    run_cases("object_store.py", s3_environment())
