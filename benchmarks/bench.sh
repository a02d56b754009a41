#!/bin/sh
# Compares this project with its peers; all files that it makes are in build/bench.
# Usage: benchmarks/bench.sh FOLDER_OF_PHOTOGRAPHS   (JPEG, PNG or WebP, at least 900 pixels per side)
set -eu
photos=${1:?"name a folder of photographs: make bench PHOTOS=folder"}
root=$(cd "$(dirname "$0")/.." && pwd)
work=$root/build/bench
python=$root/.venv/bin/python
mkdir -p "$work"

"$python" -m pip install --quiet "simplejpeg>=1.8,<2"
# Two peers need special versions of packages, so each gets its own environment.
for peer in img2dataset litdata; do
    if [ ! -e "$work/$peer/.installed" ]; then
        "$python" -m venv "$work/$peer"
        "$work/$peer/bin/python" -m pip install --quiet -r "$root/benchmarks/requirements-$peer.txt"
        touch "$work/$peer/.installed"
    fi
done

cd "$root"
[ -d "$work/3000" ] || "$python" benchmarks/make_photos.py "$photos" "$work/3000" --count 3000
[ -d "$work/30000" ] || "$python" benchmarks/make_photos.py "$photos" "$work/30000" --count 30000
[ -d "$work/large" ] || "$python" benchmarks/make_photos.py "$photos" "$work/large" --count 48 --megapixels 8

"$python" benchmarks/run.py --photos "$work/3000" --rounds "${ROUNDS:-3}" --json "$work/peers.json" \
    --peer_python "$work/img2dataset/bin/python" --peer_python "$work/litdata/bin/python"
"$python" benchmarks/run.py --photos "$work/30000" --rounds 1 --only shardwright --json "$work/memory.json"
"$python" benchmarks/large_photos.py --photos "$work/large"
"$python" benchmarks/archives.py --photos "$work/3000"
"$python" benchmarks/manifest.py
"$python" benchmarks/storage.py --photos "$work/3000"
"$python" benchmarks/loader.py --photos "$work/3000"
"$python" benchmarks/random_access.py --photos "$work/3000" --work "$work/random"
"$python" benchmarks/cores.py --photos "$work/3000"
"$python" benchmarks/scale.py --sizes 10000,100000,1000000
