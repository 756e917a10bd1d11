#!/usr/bin/env bash
# Build the collector of builder.yaml into build/collector, unless what is there was built from the same file.
set -euo pipefail
cd "$(dirname "$0")/../.."

config=deploy/otel/builder.yaml
built=build/collector
program=$built/$(sed -n 's/^  name: //p' $config)
version=$(sed -n 's/^  version: //p' $config)

if [ -x "$program" ] && cmp -s $config $built/builder.yaml; then
    echo "$program is built"
    exit
fi
command -v go >/dev/null || { echo "no Go on this machine, which builds the collector" >&2; exit 1; }
rm -rf $built
mkdir -p build
GOFLAGS="${GOFLAGS:--buildvcs=false}" go run "go.opentelemetry.io/collector/cmd/builder@v$version" --config $config
cp $config $built/builder.yaml
echo "$program is built"
