#!/usr/bin/env bash
# Starts a conversion, or a rebuild, on Dataflow in one of three ways:
#
#   launch.sh template  SETTINGS   from the Flex Template TEMPLATE, which build.sh wrote
#   launch.sh container SETTINGS   from this machine, with IMAGE on the workers
#   launch.sh package   SETTINGS   from this machine, with the package sent along and built on each worker
#
# SETTINGS are the settings of `shardwright convert`, written as --name=value, such as
#   --input=gs://my-bucket/photos --output=gs://my-bucket/datasets/v1 --resize=224
# With --job=gs://my-bucket/jobs/pets.yaml it runs `shardwright rebuild`.
#
# PROJECT, REGION, BUCKET   where the job runs; temporary files go to gs://BUCKET/dataflow
# TEMPLATE, IMAGE           see above
# JOB_NAME                  default: shardwright-DATE-TIME
# MACHINE_TYPE              default: the choice of Dataflow
# DISK_GB                   default: 50
# MAX_WORKERS               default: 20
# LABELS                    KEY=VALUE, with commas between several; default: app=shardwright
# SERVICE_ACCOUNT           account of the workers; default: that of Compute Engine
# SUBNETWORK                for workers without a public address: regions/REGION/subnetworks/NAME
# THREADS                   parallel shards in each process; default: 1
set -euo pipefail

usage() {
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" >&2
}

need() {
  if [[ -z "${!1:-}" ]]; then
    echo "launch.sh: $1 is not set: $2" >&2
    usage
    exit 2
  fi
}

route=${1:-}
case "$route" in
  template) need TEMPLATE "the gs:// path that build.sh wrote" ;;
  container) need IMAGE "the image that build.sh pushed" ;;
  package) ;;
  *)
    echo "launch.sh: say template, container or package first" >&2
    usage
    exit 2
    ;;
esac
shift
need PROJECT "the project that pays"
need REGION "the region of the buckets, such as europe-west1"
need BUCKET "for temporary files, without gs://"
command=convert
for setting in "$@"; do
  if [[ "$setting" == --job=* ]]; then
    command=rebuild
  fi
  if [[ ! "$setting" =~ ^--[a-z0-9_]+= ]]; then
    echo "launch.sh: $setting is not a setting; write --name=value (--overwrite=true)" >&2
    exit 2
  fi
done

JOB_NAME=${JOB_NAME:-shardwright-$(date -u +%Y%m%d-%H%M%S)}
DISK_GB=${DISK_GB:-50}
MAX_WORKERS=${MAX_WORKERS:-20}
LABELS=${LABELS:-app=shardwright}
THREADS=${THREADS:-1}

if [[ "$route" == template ]]; then
  parameters=()
  for setting in "$@" "--number_of_worker_harness_threads=$THREADS" "--disk_size_gb=$DISK_GB" \
    ${IMAGE:+"--sdk_container_image=$IMAGE"}; do
    # Values contain commas, so the list needs another delimiter (gcloud topic escaping).
    parameters+=(--parameters "^:::^${setting#--}")
  done
  exec gcloud dataflow flex-template run "$JOB_NAME" \
    --template-file-gcs-location "$TEMPLATE" --project "$PROJECT" --region "$REGION" \
    --staging-location "gs://$BUCKET/dataflow/staging" --temp-location "gs://$BUCKET/dataflow/tmp" \
    --max-workers "$MAX_WORKERS" --additional-user-labels "$LABELS" \
    ${MACHINE_TYPE:+--worker-machine-type "$MACHINE_TYPE"} \
    ${SERVICE_ACCOUNT:+--service-account-email "$SERVICE_ACCOUNT"} \
    ${SUBNETWORK:+--subnetwork "$SUBNETWORK" --disable-public-ips} "${parameters[@]}"
fi

if [[ "$route" == container ]]; then
  # The image contains everything that workers need, so nothing is sent along.
  code=(--sdk_container_image="$IMAGE" --sdk_location=container)
else
  # This changes no directory, because paths in SETTINGS are relative to that of the caller.
  code=(--setup_file="$(cd "$(dirname "$0")/../.." && pwd)/setup.py")
fi
labels=()
for label in ${LABELS//,/ }; do
  labels+=("--label=$label")
done
exec "${SHARDWRIGHT:-shardwright}" "$command" "$@" --runner=DataflowRunner --job_name="$JOB_NAME" \
  --project="$PROJECT" --region="$REGION" \
  --staging_location="gs://$BUCKET/dataflow/staging" --temp_location="gs://$BUCKET/dataflow/tmp" \
  --disk_size_gb="$DISK_GB" --max_num_workers="$MAX_WORKERS" "${labels[@]}" \
  --number_of_worker_harness_threads="$THREADS" "${code[@]}" \
  ${MACHINE_TYPE:+--machine_type="$MACHINE_TYPE"} \
  ${SERVICE_ACCOUNT:+--service_account_email="$SERVICE_ACCOUNT"} \
  ${SUBNETWORK:+--subnetwork="$SUBNETWORK" --no_use_public_ips}
