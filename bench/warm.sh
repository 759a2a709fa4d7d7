#!/usr/bin/env bash
# How long `kjit warm` takes to fill an empty cache, and how it scales with jobs. No GPU.
#   warm.sh [--kjit PATH] [--set NAME] [--arch ARCH] [--jobs "1 2 4"] [--rounds N] [--nvcc] [--json]
# --nvcc also compiles each config's text with nvcc, one process for a config, as many at once as the most jobs.
set -euo pipefail

kjit=kjit set=prebuilt arch=sm_80 jobs="" rounds=1 with_nvcc=0 json=0
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case $1 in
    --kjit) kjit=$2; shift 2 ;;
    --set) set=$2; shift 2 ;;
    --arch) arch=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --nvcc) with_nvcc=1; shift ;;
    --json) json=1; shift ;;
    *) usage ;;
  esac
done

if [ -z "$jobs" ]; then
  for ((n = 1; n < $(nproc); n *= 2)); do jobs+="$n "; done
  jobs+=$(nproc)
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# report VARIANT SECONDS...: the median of the rounds
report() {
  local variant=$1
  shift
  printf '%s\n' "$@" | sort -g | awk -v variant="$variant" -v set="$set" -v arch="$arch" -v json="$json" '
    { s[NR] = $1 }
    END {
      median = (s[int((NR + 1) / 2)] + s[int(NR / 2) + 1]) / 2
      if (json) {
        printf "{\"benchmark\": \"warm\", \"set\": \"%s\", \"arch\": \"%s\", \"variant\": \"%s\", \"unit\": \"s\", ",
          set, arch, variant
        printf "\"median\": %.3f, \"least\": %.3f, \"most\": %.3f, \"count\": %d}\n", median, s[1], s[NR], NR
      } else printf "%-32s %8.2f s  (least %.2f, most %.2f, of %d)\n", variant, median, s[1], s[NR], NR
    }'
}

# warm_once JOBS: seconds, as the command itself counts them
warm_once() {
  local cache result
  cache=$(mktemp -d -p "$work")
  result=$(KJIT_CACHE_DIR=$cache KJIT_CACHE_MODE=rw KJIT_CACHE_SITE='' "$kjit" warm --set "$set" --arch "$arch" \
    --jobs "$1" --json 2>/dev/null)
  rm -rf "$cache"
  if ! grep -q '"failed": 0' <<<"$result"; then
    echo "warm.sh: kjit warm failed: $result" >&2
    exit 1
  fi
  sed -n 's/.*"seconds": *\([0-9.]*\).*/\1/p' <<<"$result"
}

# The same configs for nvcc, as files. nvcc brings its own int64_t and the like: in this copy, ours have a prefix.
nvcc_prepare() {
  local cache=$work/nvcc-cache number=0
  mkdir "$cache" "$work/nvcc"
  cp -r "$root/kernel_src" "$work/kernel_src"
  KJIT_CACHE_DIR=$cache "$kjit" warm --set "$set" --arch "$arch" --json >/dev/null 2>&1
  KJIT_CACHE_DIR=$cache "$kjit" cache list --json | sed -n 's/.*"label": *"\(.*\)",*$/\1/p' | while read -r config; do
    number=$((number + 1))
    "$kjit" compile --flash "$config" --arch "$arch" --show-source >"$work/nvcc/$number.cu"
  done
  find "$work/nvcc" "$work/kernel_src" -type f -exec sed -i -E 's/\bu?int[0-9]+_t\b/kernel_&/g' {} +
}

nvcc_once() {
  local begin
  begin=$(date +%s.%N)
  if ! find "$work/nvcc" -name '*.cu' -print0 | xargs -0 -P "$1" -I{} \
    nvcc -std=c++17 --use_fast_math "-arch=$arch" -cubin -I "$work/kernel_src" -o {}.cubin {} 2>"$work/nvcc.log"; then
    echo "warm.sh: nvcc failed: $(head -n 3 "$work/nvcc.log")" >&2
    exit 1
  fi
  echo "$begin $(date +%s.%N)" | awk '{ print $2 - $1 }'
}

command -v "$kjit" >/dev/null || { echo "warm.sh: no command '$kjit'; give --kjit PATH" >&2; exit 1; }
most=1
for n in $jobs; do
  [ "$n" -gt "$most" ] && most=$n
  seconds=()
  for ((round = 0; round < rounds; round++)); do seconds+=("$(warm_once "$n")"); done
  report "kjit warm --jobs $n" "${seconds[@]}"
done
if [ "$with_nvcc" = 1 ]; then
  if command -v nvcc >/dev/null; then
    nvcc_prepare
    nvcc_seconds=$(nvcc_once "$most")
    report "nvcc, one process a config, -P $most" "$nvcc_seconds"
  else
    echo "warm.sh: no nvcc here; left out" >&2
  fi
fi
