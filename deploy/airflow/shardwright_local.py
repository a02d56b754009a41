"""A rebuild each night on Airflow's own worker, where Shardwright is installed in an environment of its own.

Exit code 3, a failure of the machine or the storage, is tried again; 1, refused by a gate, and 2, a mistake
in the job file, fail at once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

#: Airflow pins other versions of the same packages: python -m venv /opt/shardwright
SHARDWRIGHT = "/opt/shardwright/bin/shardwright"
JOB = "/etc/shardwright/pets.yaml"


class RebuildOperator(BashOperator):
    """`shardwright rebuild --job JOB`, not tried again where that would end the same."""

    def __init__(self, *, job: str, **kwargs: Any) -> None:
        # The job is no part of the command's text, so nothing in its name means anything to the shell.
        super().__init__(
            bash_command=f'exec {SHARDWRIGHT} rebuild --job "$SHARDWRIGHT_JOB" --log_format json',
            env={"SHARDWRIGHT_JOB": job},
            append_env=True,
            skip_on_exit_code=[1, 2],
            **kwargs,
        )

    def execute(self, context: Any) -> Any:
        """Runs the command; what Airflow would skip is a failure for good."""
        try:
            return super().execute(context)
        except AirflowSkipException as refused:
            raise AirflowFailException(
                "Refused by a gate, or the job file is wrong; the end of the log says why and what to do."
            ) from refused


with DAG(
    dag_id="shardwright_pets",
    schedule="0 2 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,  # a rebuild takes what is there now, so a missed night needs no run of its own
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
