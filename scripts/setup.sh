#!/usr/bin/env bash
# Installs what blockscale is built and tested with, from Debian 12's own packages.
#   scripts/setup.sh build    what the program needs (make demo, make build)
#   scripts/setup.sh test     that, and what the tests need (make test)
#   scripts/setup.sh venv FOLDER [REQUIREMENTS]
#                             a Python environment with tests/python/requirements.txt (or others); where
#                             its packages come from is pip's own configuration
# Does nothing, quickly and without network, when everything is there already.
set -euo pipefail

# The environment records what it was made from, last, so that a half-made one is made again.
make_venv() {
  local folder=$1 requirements=$2 stamp=$1/made-from.txt wanted
  if ! wanted=$(cat "$requirements" "$(dirname "$requirements")/requirements.txt"); then
    echo "setup.sh: $requirements cannot be read" >&2
    exit 1
  fi
  [ -x "$folder/bin/python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && return
  if [ -e "$folder" ] && [ ! -f "$folder/pyvenv.cfg" ] && [ -n "$(ls -A "$folder")" ]; then
    echo "setup.sh: $folder exists and is no Python environment; remove it or name another folder" >&2
    exit 1
  fi
  echo "setup.sh: making the Python environment $folder"
  if ! python3 -m venv --clear "$folder"; then
    echo "setup.sh: python3 cannot make $folder; run scripts/setup.sh test first (Debian's python3-venv)" >&2
    exit 1
  fi
  if ! "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: \
    --requirement "$requirements" >&2; then
    echo "setup.sh: pip could not install $requirements into $folder (see above); where it looks is what" \
      "'$folder/bin/python -m pip config list' shows" >&2
    exit 1
  fi
  printf '%s\n' "$wanted" >"$stamp"
}

if [ "${1:-}" = venv ]; then
  if [ $# -lt 2 ] || [ $# -gt 3 ] || [ -z "$2" ]; then
    echo "usage: scripts/setup.sh venv FOLDER [REQUIREMENTS]" >&2
    exit 2
  fi
  make_venv "$2" "${3:-$(dirname "$0")/../tests/python/requirements.txt}"
  exit 0
fi

# Each package once, with what it is for.
build_packages=(
  g++                  # the compiler
  cmake ninja-build    # the build
  pkg-config           # finds xxHash for CMake
  libcli11-dev         # command-line flags
  nlohmann-json3-dev   # JSON
  libfmt-dev           # text
  libtbb-dev           # the streaming pipeline
  libxxhash-dev        # checksums
  libhwy-dev           # SIMD with run-time dispatch
  libre2-dev           # regular expressions that neither hang nor overflow the stack
)
test_packages=(
  libgtest-dev libgmock-dev  # tests
  git                        # lists the files that make lint looks at
  librapidcheck-dev          # properties
  libbenchmark-dev           # make bench
  clang clang-format         # the second compiler, the style
  libclang-rt-dev            # libFuzzer and sanitizers for clang
  chromium                   # opens the report pages
  python3-venv               # the environment of tests/python
  python3 python3-numpy      # checks of scripts and docs; the numpy baseline of make bench
)

case "${1:-test}" in
  build) wanted=("${build_packages[@]}") ;;
  test) wanted=("${build_packages[@]}" "${test_packages[@]}") ;;
  *) echo "usage: scripts/setup.sh [build|test], or venv FOLDER [REQUIREMENTS]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup.sh: knows Debian packages only; install what these are called here, then use cmake" \
    "directly: ${wanted[*]}" >&2
  exit 1
fi
missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup.sh: installing ${missing[*]} needs root; run as root or install sudo" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup.sh: installing ${missing[*]}"
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" </dev/null >/dev/null
}
apt update
apt install -y --no-install-recommends "${missing[@]}"
