#!/usr/bin/env bash
# Lets Cloud Scheduler start a rebuild on Dataflow every night, with the Flex Template that deploy/dataflow/build.sh wrote:
#
#   schedule.sh create     creates the schedule
#   schedule.sh update     changes it
#   schedule.sh body       only prints the request to Dataflow
#
# PROJECT, REGION, BUCKET   where the job runs; temporary files go to gs://BUCKET/dataflow
# TEMPLATE                  the gs:// path that build.sh wrote
# JOB                       the gs:// path of the job file
# SERVICE_ACCOUNT           account of the workers
# SCHEDULER_ACCOUNT         account that starts the job; default: SERVICE_ACCOUNT. It needs roles/dataflow.developer,
#                           and roles/iam.serviceAccountUser on SERVICE_ACCOUNT
# NAME                      name of the schedule and the job; default: shardwright- and the name of the job file
# SCHEDULE, TIME_ZONE       default: "0 2 * * *" and Etc/UTC
# MACHINE_TYPE              default: the choice of Dataflow
# DISK_GB                   default: 50
# MAX_WORKERS               default: 20
# SUBNETWORK                for workers without a public address: regions/REGION/subnetworks/NAME
set -euo pipefail

usage() {
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" >&2
}

fail() {
  echo "schedule.sh: $1" >&2
  exit 2
}

need() {
  if [[ -z "${!1:-}" ]]; then
    echo "schedule.sh: $1 is not set: $2" >&2
    usage
    exit 2
  fi
}

action=${1:-}
if [[ "$action" != create && "$action" != update && "$action" != body ]] || (($# != 1)); then
  echo "schedule.sh: say create, update or body" >&2
  usage
  exit 2
fi
need PROJECT "the project that pays"
need REGION "the region of the buckets, such as europe-west1"
need BUCKET "for temporary files, without gs://"
need TEMPLATE "the gs:// path that build.sh wrote"
need JOB "the gs:// path of the job file"
need SERVICE_ACCOUNT "the account of the workers"
SCHEDULER_ACCOUNT=${SCHEDULER_ACCOUNT:-$SERVICE_ACCOUNT}
SCHEDULE=${SCHEDULE:-0 2 * * *}
TIME_ZONE=${TIME_ZONE:-Etc/UTC}
MACHINE_TYPE=${MACHINE_TYPE:-}
DISK_GB=${DISK_GB:-50}
MAX_WORKERS=${MAX_WORKERS:-20}
file=${JOB##*/}
NAME=${NAME:-shardwright-${file%.*}}

for place in "$TEMPLATE" "$JOB"; do
  [[ "$place" == gs://?*/?* ]] || fail "$place is not an object in a bucket; write gs://BUCKET/.../NAME"
done
[[ "$NAME" =~ ^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$ ]] ||
  fail "NAME is $NAME; Dataflow accepts lower case letters, digits and hyphens, at most 63"
[[ "$DISK_GB$MAX_WORKERS" =~ ^[0-9]+$ ]] || fail "DISK_GB and MAX_WORKERS must be whole numbers"
# They are inserted into JSON unchanged.
for value in "$PROJECT" "$REGION" "$BUCKET" "$TEMPLATE" "$JOB" "$SERVICE_ACCOUNT" "$MACHINE_TYPE" "${SUBNETWORK:-}"; do
  [[ "$value" != *[\"\\[:cntrl:]]* ]] || fail "$value has a quote, a backslash or a line break"
done

# The same job name every night: Dataflow does not run two jobs with the same name at once.
body=$(
  cat <<JSON
{
  "launchParameter": {
    "jobName": "$NAME",
    "containerSpecGcsPath": "$TEMPLATE",
    "parameters": {
      "job": "$JOB",
      "number_of_worker_harness_threads": "1",
      "disk_size_gb": "$DISK_GB"
    },
    "environment": {
      "maxWorkers": $MAX_WORKERS,${MACHINE_TYPE:+
      \"machineType\": \"$MACHINE_TYPE\",}${SUBNETWORK:+
      \"subnetwork\": \"$SUBNETWORK\",
      \"ipConfiguration\": \"WORKER_IP_PRIVATE\",}
      "serviceAccountEmail": "$SERVICE_ACCOUNT",
      "stagingLocation": "gs://$BUCKET/dataflow/staging",
      "tempLocation": "gs://$BUCKET/dataflow/tmp"
    }
  }
}
JSON
)
if [[ "$action" == body ]]; then
  echo "$body"
  exit
fi

if [[ "$action" == create ]]; then
  headers=--headers
else
  headers=--update-headers
fi
exec gcloud scheduler jobs "$action" http "$NAME" --project "$PROJECT" --location "$REGION" \
  --schedule "$SCHEDULE" --time-zone "$TIME_ZONE" \
  --uri "https://dataflow.googleapis.com/v1b3/projects/$PROJECT/locations/$REGION/flexTemplates:launch" \
  --http-method POST "$headers" Content-Type=application/json --message-body "$body" \
  --oauth-service-account-email "$SCHEDULER_ACCOUNT" \
  --oauth-token-scope https://www.googleapis.com/auth/cloud-platform \
  --attempt-deadline 180s --max-retry-attempts 3 --min-backoff 60s
