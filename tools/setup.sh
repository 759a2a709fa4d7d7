# shellcheck shell=bash disable=SC2034 # used by those who source this
# Sourced by the scripts of this folder: finds what a build needs, installs what is missing.
#
#   need_packages PACKAGE...          Debian packages: installed when root, otherwise the command is named
#   need_cuda                         CUDA's headers and NVRTC: those of the machine, else fetched into build/cuda
#   configure_preset PRESET           configure alone
#   build_preset PRESET [TARGET]...   configure and build, with ccache where it is

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc)

build_packages=(build-essential cmake ninja-build pkg-config python3
                libsodium-dev libzstd-dev libyaml-dev libxxhash-dev uthash-dev libjansson-dev libcmocka-dev)
check_packages=(ccache clang clang-format clang-tidy git python3-venv)

say() { printf '== %s\n' "$*" >&2; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

need_packages() {
    command -v dpkg-query >/dev/null || return 0 # not Debian: CMake names what it does not find
    local missing=() package
    for package in "$@"; do is_installed "$package" || missing+=("$package"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" -eq 0 ] || die "missing: ${missing[*]}. Run: sudo apt-get install ${missing[*]}"
    say "installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# The first of these folders that holds a toolkit: its headers and NVRTC.
system_cuda() {
    [ -z "${KJIT_IGNORE_SYSTEM_CUDA:-}" ] || return 1
    local folder
    for folder in ${CUDA_HOME:+"$CUDA_HOME"} /usr/local/cuda /usr/local/cuda-*; do
        if [ -e "$folder/include/cuda.h" ] && compgen -G "$folder/lib64/libnvrtc.so.*" >/dev/null; then
            echo "$folder"
            return 0
        fi
    done
    return 1
}

need_cuda() {
    if system_cuda >/dev/null; then return 0; fi
    [ -e "$root/build/cuda/include/cuda.h" ] || "$root/tools/fetch-cuda"
    export KJIT_NVRTC=${KJIT_NVRTC:-$(echo "$root"/build/cuda/lib/libnvrtc.so.*)}
}

# CMake in this process and in all that it starts, tests too, compiles through ccache. An object does not depend on the
# folder that it is built in, so that tests which build the library anew find what the preset has compiled just before.
use_ccache() {
    command -v ccache >/dev/null || return 0
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_NOHASHDIR=1
    # Named, because tests have an XDG_CACHE_HOME of their own, below which ccache would begin with nothing.
    CCACHE_DIR=${CCACHE_DIR:-$(ccache --get-config cache_dir)} && export CCACHE_DIR
}

# Two scripts at once take turns: they share the build folder.
configure_preset() {
    mkdir -p "$root/build"
    (cd "$root" && use_ccache && exec 9>"build/$1.lock" && flock 9 && cmake --preset "$1")
}

build_preset() {
    local preset=$1 targets=()
    shift
    [ $# -eq 0 ] || targets=(--target "$@")
    mkdir -p "$root/build"
    (cd "$root" && use_ccache && exec 9>"build/$preset.lock" && flock 9 && cmake --preset "$preset" &&
        cmake --build --preset "$preset" --parallel "$jobs" "${targets[@]}")
}
