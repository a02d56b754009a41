"""Rebuilds every night on an Airflow worker, with Shardwright in a separate environment.

Exit code 3 (the machine or the storage failed) is retried. Exit codes 1 (a gate refused the version)
and 2 (the job file is wrong) fail at once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

#: Airflow pins other versions of the same packages, so this is a separate environment.
SHARDWRIGHT = "/opt/shardwright/bin/shardwright"
JOB = "/etc/shardwright/pets.yaml"


class RebuildOperator(BashOperator):
    """Runs `shardwright rebuild --job JOB`, without retries that would fail again."""

    def __init__(self, *, job: str, **kwargs: Any) -> None:
        # The job is not part of the command's text, so the shell does not interpret its name.
        super().__init__(
            bash_command=f'exec {SHARDWRIGHT} rebuild --job "$SHARDWRIGHT_JOB" --log_format json',
            env={"SHARDWRIGHT_JOB": job},
            append_env=True,
            skip_on_exit_code=[1, 2],
            **kwargs,
        )

    def execute(self, context: Any) -> Any:
        """Runs the command; where Airflow would skip, the task fails without a retry."""
        try:
            return super().execute(context)
        except AirflowSkipException as refused:
            raise AirflowFailException(
                "A gate refused the version, or the job file is wrong; the end of the log says why."
            ) from refused


with DAG(
    dag_id="shardwright_pets",
    schedule="0 2 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,  # a rebuild uses the current images, so a missed night needs no extra run
    max_active_runs=1,
    params={"job": JOB},
    tags=["shardwright"],
) as dag:
    RebuildOperator(
        task_id="rebuild",
        job="{{ params.job }}",
        retries=2,
        retry_delay=timedelta(minutes=10),
        execution_timeout=timedelta(hours=20),
    )
