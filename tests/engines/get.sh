#!/bin/sh
# Gets an engine for the tests into build/engines, once for each version of Beam:
#   sh tests/engines/get.sh prism    builds Beam's own runner from its Go module
#   sh tests/engines/get.sh flink    fetches Beam's Flink job server, or puts an older one together
set -eu
cd "$(dirname "$0")/../.."
place="$PWD/build/engines"
beam=$("${PYTHON:-.venv/bin/python}" -c 'from importlib.metadata import version; print(version("apache-beam"))')

need() {
    command -v "$1" >/dev/null || { echo "$1 is not installed; the tests on $2 are skipped." >&2; exit 1; }
}

get_prism() {
    [ -x "$place/prism-$beam" ] && return
    need go Prism
    GOBIN="$place/go" go install "github.com/apache/beam/sdks/v2/go/cmd/prism@v$beam"
    mv "$place/go/prism" "$place/prism-$beam"
    rmdir "$place/go"
}

get_flink() {
    target="$place/flink-$beam"
    if [ ! -f "$target/job-server.jar" ]; then
        need java Flink
        need mvn Flink
        rm -rf "$target" "$target.new"
        mkdir -p "$target.new"
        official="beam-runners-flink-1.20-job-server"
        if mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
            -Dartifact="org.apache.beam:$official:$beam" -DoutputDirectory="$target.new" \
            >"$target.new/official.log" 2>&1; then
            mv "$target.new/$official-$beam.jar" "$target.new/job-server.jar"
            echo "$official $beam" >"$target.new/about"
        else
            pom=tests/engines/flink-job-server/pom.xml
            mvn -q -B -f "$pom" package -Doutput="$target.new" >"$target.new/older.log" 2>&1 ||
                { tail -n 5 "$target.new/older.log" >&2; exit 1; }
            (cd "$target.new/lib" && ls beam-runners-flink-*.jar) >"$target.new/about"
        fi
        mv "$target.new" "$target"
    fi
    echo "Flink job server for the tests with Beam $beam: $(cat "$target/about")"
}

mkdir -p "$place"
"get_$1"
