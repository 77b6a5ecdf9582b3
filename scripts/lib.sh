# Sourced by the scripts: where we are, stages with times, and the list of unit test programs.
# shellcheck shell=bash
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
jobs=$(nproc)
started=$SECONDS

# stage NAME: a line that says what goes on and how long it has been.
stage() { printf '=== [%4d s] %s\n' $((SECONDS - started)) "$*"; }

# build PRESET [cmake --build arguments]: configures when needed, builds, quiet unless it fails.
build() {
  local preset=$1 log="build/$1.log"
  shift
  mkdir -p build
  { cmake --preset "$preset" && cmake --build --preset "$preset" -j "$jobs" "$@"; } >"$log" 2>&1 ||
    { grep -nE 'error|FAILED|undefined' "$log" | head -40 >&2; tail -40 "$log" >&2; echo "build of preset $preset failed, see $log" >&2; return 1; }
}
