"""Rebuilds every night on Dataflow, with the Flex Template that deploy/dataflow/build.sh wrote.

If a gate refuses the version, the task fails at once. Other failures are retried.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pendulum
from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException

PROJECT = "my-project"
REGION = "europe-west1"
BUCKET = "my-bucket"
TEMPLATE = f"gs://{BUCKET}/templates/shardwright.json"
JOB = f"gs://{BUCKET}/jobs/pets.yaml"

#: The form of a command's exit code and message in the errors of a job's log.
REFUSED = re.compile(r"<shardwright:[12]>(.*?)</shardwright>", re.DOTALL)


class RebuildOperator(DataflowStartFlexTemplateOperator):
    """Starts the template and waits for the job, without retries that would fail again."""

    def execute(self, context: Any) -> Any:
        """Runs the job; a refusal in the job's log fails the task without a retry."""
        try:
            return super().execute(context)
        except AirflowException as error:
            refusal = self._refusal()
            if refusal:
                raise AirflowFailException(refusal) from error
            raise

    def _refusal(self) -> str:
        """Returns the message of a refusal; empty if there is none or the log cannot be read."""
        if self.job is None:
            return ""
        try:
            messages = self.hook.fetch_job_messages_by_id(
                job_id=self.job["id"], project_id=self.project_id, location=self.location
            )
        except Exception:
            self.log.exception("The log of the job could not be read.")
            return ""
        texts = (REFUSED.search(message.get("messageText", "")) for message in messages)
        return next((found[1] for found in texts if found), "")


with DAG(
    dag_id="shardwright_pets_dataflow",
    schedule="0 2 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,  # a rebuild uses the current images, so a missed night needs no extra run
    max_active_runs=1,
    params={"job": JOB},
    tags=["shardwright"],
) as dag:
    RebuildOperator(
        task_id="rebuild",
        project_id=PROJECT,
        location=REGION,
        # The same name every night: Dataflow does not run two jobs with the same name at once.
        append_job_name=False,
        body={
            "launchParameter": {
                "jobName": "shardwright-pets",
                "containerSpecGcsPath": TEMPLATE,
                "parameters": {
                    "job": "{{ params.job }}",
                    "number_of_worker_harness_threads": "1",
                    "disk_size_gb": "50",
                },
                "environment": {
                    "machineType": "n2-standard-4",
                    "maxWorkers": 10,
                    "serviceAccountEmail": f"shardwright@{PROJECT}.iam.gserviceaccount.com",
                    "stagingLocation": f"gs://{BUCKET}/dataflow/staging",
                    "tempLocation": f"gs://{BUCKET}/dataflow/tmp",
                },
            }
        },
        wait_until_finished=True,
        deferrable=False,
        poll_sleep=60,
        retries=2,
        retry_delay=timedelta(minutes=10),
        execution_timeout=timedelta(hours=20),
    )
