#!/usr/bin/env bash
# Builds and pushes the image, and writes the Flex Template that starts it.
#
#   IMAGE=europe-west1-docker.pkg.dev/my-project/images/shardwright:1.0 \
#   TEMPLATE=gs://my-bucket/templates/shardwright.json deploy/dataflow/build.sh
#
# PROJECT   the project of the bucket; default: that of `gcloud config`
# DOCKER    the command that builds and pushes; default: docker
set -euo pipefail

usage() {
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" >&2
}

need() {
  if [[ -z "${!1:-}" ]]; then
    echo "build.sh: $1 is not set: $2" >&2
    usage
    exit 2
  fi
}

need IMAGE "the name of the image to push, with a tag"
need TEMPLATE "the gs:// path of the template to write"
DOCKER=${DOCKER:-docker}
if [[ "$TEMPLATE" != gs://*/*.json ]]; then
  echo "build.sh: TEMPLATE is $TEMPLATE; write gs://BUCKET/.../NAME.json" >&2
  exit 2
fi
for command in "$DOCKER" gcloud; do
  if ! command -v "$command" >/dev/null; then
    echo "build.sh: install $command first" >&2
    exit 2
  fi
done

cd "$(dirname "$0")/../.."
DOCKER_BUILDKIT=1 "$DOCKER" build --platform linux/amd64 --file deploy/dataflow/Dockerfile \
  --build-arg "IMAGE=$IMAGE" --tag "$IMAGE" .
"$DOCKER" push "$IMAGE"
gcloud dataflow flex-template build "$TEMPLATE" --image "$IMAGE" --sdk-language PYTHON \
  --metadata-file deploy/dataflow/metadata.json ${PROJECT:+--project "$PROJECT"}
echo "The template is $TEMPLATE; start it with deploy/dataflow/launch.sh template."
