#!/usr/bin/env bash
# Installs into a fresh prefix, builds the consumer against it, runs both programs.
# usage: install_test.sh CMAKE BUILD_FOLDER CONSUMER_FOLDER CXX SANITIZERS
set -euo pipefail
cmake=$1 build=$2 consumer=$3 cxx=$4 sanitizers=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$cmake" --install "$build" --prefix "$work/prefix" >/dev/null
for file in bin/blockscale include/blockscale/convert.h include/blockscale/fp8_to_int8.h \
  share/doc/blockscale/LICENSE; do
  [ -e "$work/prefix/$file" ] || { echo "not installed: $file"; exit 1; }
done
find "$work/prefix" -name blockscaleConfig.cmake | grep -q . || { echo "no CMake package"; exit 1; }
if grep -rn '#include "[^b]' "$work/prefix/include"; then echo "a header of src/ leaked"; exit 1; fi

"$cmake" -S "$consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_CXX_COMPILER="$cxx" ${sanitizers:+-DCMAKE_CXX_FLAGS=-fsanitize=$sanitizers} >/dev/null
"$cmake" --build "$work/build" >/dev/null
"$work/build/consumer" | tee "$work/out"
version=$("$work/prefix/bin/blockscale" --version)
echo "$version"
[ "$(head -n 1 "$work/out")" = "$version" ] || { echo "program and library differ in version"; exit 1; }
[ "$(tail -n 1 "$work/out")" = "127 -64 0 1" ] || { echo "the library converted wrongly"; exit 1; }
