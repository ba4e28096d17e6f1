#!/usr/bin/env bash
# Runs every fuzzer of a build for a while. New inputs stay in the build folder; a finding is kept
# there too, and its file belongs into corpus/ together with the fix.
# usage: tests/fuzz/run.sh BUILD-FOLDER SECONDS
set -euo pipefail
build=$(cd "$1" && pwd)
seconds=$2
here=$(cd "$(dirname "$0")" && pwd)

fuzz_one() {
  local name=$1 log="$build/fuzz_$1.log"
  mkdir -p "$build/corpus/$name" "$build/findings"
  if "$build/bin/fuzz_$name" -max_total_time="$seconds" -max_len=8192 -timeout=10 \
    -rss_limit_mb=1024 -dict="$here/json.dict" -artifact_prefix="$build/findings/$name-" \
    -print_final_stats=1 "$build/corpus/$name" "$here/corpus/$name" >"$log" 2>&1; then
    printf 'fuzz_%s: %s runs, no finding\n' "$name" \
      "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  else
    tail -n 40 "$log"
    printf 'fuzz_%s: a finding; repeat it with %s/bin/fuzz_%s FILE (named above)\n' \
      "$name" "$build" "$name"
    return 1
  fi
}

found=0
jobs=()
for fuzzer in "$here"/fuzz_*.cc; do
  name=$(basename "$fuzzer" .cc)
  fuzz_one "${name#fuzz_}" &
  jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job" || found=1; done
exit $found
