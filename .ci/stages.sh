# shellcheck shell=bash
# The stages of .ci/run, as functions named stage_NAME. A stage is a list of
# steps; a step that fails does not stop the ones behind it.

STEPS_FAILED=()

# step runs a command or function in a subshell that stops at the first error,
# shows what it printed, and notes the seconds.
step() { # title command ...
  local title=$1 began=$SECONDS rc
  shift
  echo "--- $title"
  set +e
  (
    set -e
    "$@"
  )
  rc=$?
  set -e
  if ((rc)); then
    STEPS_FAILED+=("$title")
    echo "--- $title: FAILED after $((SECONDS - began)) s"
  else
    echo "--- $title: ok, $((SECONDS - began)) s"
  fi
}

skip() { # title reason
  echo "--- $1: skipped: $2"
}

steps_passed() {
  if ((${#STEPS_FAILED[@]})); then
    printf 'failed step: %s\n' "${STEPS_FAILED[@]}"
    return 1
  fi
}

# empty fails when a command prints anything, and shows it.
empty() { # command ...
  local out rc=0
  out=$("$@") || rc=$?
  [[ -z $out ]] || printf '%s\n' "$out"
  [[ $rc == 0 && -z $out ]]
}

modules() { # every directory that holds a tracked go.mod
  git ls-files --cached --others --exclude-standard -- go.mod '*/go.mod' | xargs -n 1 dirname | sort
}

nested_modules() {
  modules | grep -vx -e . || true
}

has_packages() { # directory of a module
  [[ -n $(go -C "$1" list ./... 2>/dev/null) ]]
}

# each_module makes a step of a command for every module with packages.
each_module() { # title command ...; {} becomes the directory
  local title=$1 dir
  shift
  for dir in $(modules); do
    if has_packages "$dir"; then
      step "$title in $dir" "${@//\{\}/$dir}"
    else
      skip "$title in $dir" 'no packages'
    fi
  done
}

# Tools are built once into a directory named after their sums and the compiler.
tools_dir() {
  local key
  key=$( (go env GOVERSION GOOS GOARCH; cat tools/go.mod tools/go.sum) | sha256sum | cut -c 1-16)
  echo "$ROOT/.ci/cache/tools-$key"
}

build_tool() { # name
  [[ ! -x $TOOLS/$1 ]] || return 0
  local pkg made
  pkg=$(go -C tools list tool | grep "/$1\$")
  mkdir -p "$TOOLS"
  made=$(mktemp -d "$TOOLS/making.XXXXXX")
  go -C tools build -o "$made/$1" "$pkg"
  mv "$made/$1" "$TOOLS/$1" # in one move: another run may be about it too
  rmdir "$made"
}

# need_tools builds what a stage needs and sets TOOLS.
need_tools() { # name ...
  local name
  TOOLS=$(tools_dir)
  for name in "$@"; do
    step "build $name" build_tool "$name"
  done
}

# ---- lint

stage_lint() {
  need_tools golangci-lint deadcode
  local lint=("$TOOLS/golangci-lint")
  step 'no workspace file' empty git ls-files -- go.work '*/go.work'
  step 'lint configuration' "${lint[@]}" config verify
  step 'format' empty "${lint[@]}" fmt -d
  local dir
  for dir in $(modules); do
    step "go mod tidy in $dir" empty go -C "$dir" mod tidy -diff
  done
  each_module 'go vet' go -C {} vet ./...
  each_module 'go fix' empty go -C {} fix -diff ./...
  each_module 'golangci-lint' lint_module {}
  step 'go generate is clean' generate_clean
  step 'vet for 32 bits' env GOARCH=386 CGO_ENABLED=0 go vet ./...
  step 'build for darwin' env GOOS=darwin go build ./...
  step 'build for windows' env GOOS=windows go build ./...
  step 'dead code' empty "$TOOLS/deadcode" -test -filter "^$(go list -m)/internal" ./...
  step 'house rules' go test -count=1 ./internal/archtest
}

lint_module() { # directory
  cd "$1"
  "$TOOLS/golangci-lint" run --allow-parallel-runners --config "$ROOT/.golangci.yml" ./...
}

tree_state() {
  git status --porcelain
  git diff | sha256sum
}

generate_clean() {
  local before after dir
  before=$(tree_state)
  for dir in $(modules); do
    if has_packages "$dir"; then go -C "$dir" generate ./...; fi
  done
  after=$(tree_state)
  if [[ $before != "$after" ]]; then
    git diff --stat
    diff <(echo "$before") <(echo "$after") || true
    return 1
  fi
}

# ---- test

# readme_command prints the command that README.md tells its reader to test
# with: its first line that is a `go test`. The gate runs that and no other.
readme_command() {
  local line
  line=$(sed -n 's/^ *\(\$ \)\{0,1\}\(go test [^#`]*\).*$/\2/p' README.md | head -n 1)
  if [[ ! $line =~ ^go\ test\ [A-Za-z0-9_./=,\ -]+$ ]]; then
    echo "README.md has no plain line that starts with 'go test'; found '$line'" >&2
    return 1
  fi
  echo "$line"
}

readme_test() {
  local line words
  line=$(readme_command)
  echo "README.md says: $line"
  read -ra words <<<"$line"
  "${words[@]}"
}

stage_test() {
  step 'the test command of README.md' readme_test
  local dir
  for dir in $(nested_modules); do
    if has_packages "$dir"; then
      step "go test in $dir" go -C "$dir" test ./...
    else
      skip "go test in $dir" 'no packages'
    fi
  done
}

# ---- race

stage_race() {
  each_module 'go test -race' go -C {} test -race -shuffle=on ./...
  step 'go vet with invariants' go vet -tags invariants ./...
  step 'go vet with faults' go vet -tags faults ./...
  step 'go test -tags invariants' go test -tags invariants ./...
  step 'every fault turns its cases red' go test -tags faults ./conformance ./credit ./internal/fault
  step 'faults of credits turn the tests of the bus red' go test -tags faults -run TestCreditPromisesTurnRed ./bus
}

# ---- fuzz

fuzz_targets() { # prints "directory package function" for each
  local dir
  for dir in $(modules); do
    has_packages "$dir" || continue
    go -C "$dir" test -list '^Fuzz' ./... >"$LIST" || {
      cat "$LIST" >&2
      return 1
    }
    # Names come first, then the line of the package they belong to.
    awk -v dir="$dir" '/^Fuzz/ {names[n++] = $1} /^ok/ {for (i = 0; i < n; i++) print dir, $2, names[i]; n = 0}' "$LIST"
  done
}

fuzz_one() { # directory package function seconds
  local log rc=0 args=(-run '^$' -fuzz "^$3\$" -fuzztime "$4s" -fuzzminimizetime 10x "$2")
  log=$(go -C "$1" test "${args[@]}" 2>&1) || rc=$?
  printf '%s\n' "$log" | tail -n 40
  # The fuzzing engine may lose a race against the end of its own time; then it
  # names no input. Such a run is repeated once, any other failure stands.
  if ((rc)) && grep -q 'context deadline exceeded' <<<"$log" && ! grep -q 'Failing input' <<<"$log"; then
    echo 'no failing input named: once more'
    go -C "$1" test "${args[@]}"
    return
  fi
  return "$rc"
}

stage_fuzz() {
  local LIST targets left each=60 stop dir pkg name
  LIST=$(mktemp)
  targets=$(fuzz_targets)
  rm -f "$LIST"
  if [[ -z $targets ]]; then
    skip 'fuzzing' 'no Fuzz function in any package'
    return
  fi
  left=$(wc -l <<<"$targets")
  echo "$left fuzz targets"
  stop=210 # seconds of the stage, so that the last target ends within the budget
  while read -r dir pkg name; do
    if [[ -z ${SEDA_LONG:-} ]]; then
      # An equal part of what remains, less the time to build and start.
      each=$(((stop - SECONDS) / left - 4))
      each=$((each < 1 ? 1 : each > 20 ? 20 : each))
    fi
    step "$name in $pkg for $each s" fuzz_one "$dir" "$pkg" "$name" "$each"
    left=$((left - 1))
  done <<<"$targets"
}

# ---- bench

# A benchmark that no longer runs is found here; figures are not taken.
stage_bench() {
  each_module 'every benchmark once' go -C {} test -run '^$' -bench . -benchtime=1x ./...
}

# ---- stress (long)

# last_tag prints the last release, or nothing.
last_tag() {
  git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true
}

stage_stress() {
  local base=${SEDA_BASE:-} changed file dir names began
  [[ -n $base ]] || base=$(last_tag)
  [[ -n $base ]] || base=$(git rev-parse -q --verify HEAD~1 || true)
  if [[ -z $base ]]; then
    skip stress 'no commit to compare with'
    return
  fi
  changed=$(git diff --name-only --diff-filter=d "$base" -- '*_test.go')
  echo "test files changed since $base: $(grep -c . <<<"$changed" || true)"
  for dir in $(for file in $changed; do dirname "$file"; done | sort -u); do
    names=$(for file in $changed; do [[ $(dirname "$file") != "$dir" ]] || sed -n 's/^func \(Test[A-Za-z0-9_]*\)(t .*/\1/p' "$file"; done | grep -vx TestMain | paste -sd '|' || true)
    if [[ -z $names || $dir == internal/archtest ]]; then
      skip "stress $dir" 'no test functions, or tests of the source text alone'
      continue
    fi
    step "stress $dir" go -C "$dir" test -race -count=200 -failfast -timeout 50m -run "^($names)\$" .
  done
}

# ---- api (long)

stage_api() {
  local tag
  tag=$(last_tag)
  if [[ -z $tag ]]; then
    skip 'API against the last release' 'there is no release tag yet'
    return
  fi
  need_tools apidiff
  step "API against $tag" api_diff "$tag"
}

# api_diff lists incompatible changes since a tag that .ci/api-allowed.txt does
# not name word for word.
api_diff() { # tag
  local old
  old=$(mktemp -d)
  # shellcheck disable=SC2064 # the directory is known now
  trap "rm -rf '$old'" EXIT
  mkdir "$old/tree"
  git archive "$1" | tar -x -C "$old/tree"
  (cd "$old/tree" && "$TOOLS/apidiff" -m -w "$old/export" .)
  "$TOOLS/apidiff" -m -incompatible "$old/export" . >"$old/diff"
  grep -v '^#' .ci/api-allowed.txt | grep . >"$old/allowed" || true
  empty grep -vxF -f "$old/allowed" "$old/diff" || return 1
}

# ---- vuln (long)

# The database of vulnerabilities is itself a Go module, so the check needs no
# other host than the one modules come from.
vuln_database() {
  local cache="$ROOT/.ci/cache" module dir
  # The module holds only data for this check, and no go.sum covers it.
  module=$(GOFLAGS=-mod=mod GONOSUMDB=golang.org/x/vulndb go mod download -json golang.org/x/vulndb@latest)
  dir=$(sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p' <<<"$module")
  rm -rf "$cache/vulndb"
  mkdir -p "$cache/vulndb"
  GOFLAGS=-mod=mod go -C "$dir" build -o "$cache/indexdb" ./cmd/indexdb
  "$cache/indexdb" -vulns "$dir/data/osv" -out "$cache/vulndb"
}

# vuln_module fails on a reachable flaw of a module. One of the standard library
# is shown and does not fail: it is mended by whoever builds with a newer Go.
vuln_module() { # directory
  local report rc=0
  report=$("$TOOLS/govulncheck" -C "$1" -db "file://$ROOT/.ci/cache/vulndb" ./...) || rc=$?
  printf '%s\n' "$report"
  # 3 says that something was found; anything else but 0 that it did not run.
  ((rc == 0)) || { ((rc == 3)) && ! grep -q '^  *Module: ' <<<"$report"; }
}

stage_vuln() {
  need_tools govulncheck
  step 'fetch the vulnerability database' vuln_database
  each_module 'govulncheck' vuln_module {}
}
