# Sourced by the scripts in tools/: changes to the project, creates its virtual environment .venv,
# and puts it first on the PATH. Reinstalls only after pyproject.toml has changed.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}
[[ -t 1 ]] || say() { printf '==> %s\n' "$*"; }

suitable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if ! suitable .venv/bin/python; then
    python=
    for candidate in python3 python3.13 python3.12 python3.11; do
        if suitable "$candidate"; then
            python=$candidate
            break
        fi
    done
    [[ -n $python ]] ||
        fail "Python 3.11 or later is needed; python3 is $(python3 --version 2>&1 || true)"
    say "Creating a virtual environment in .venv ($("$python" --version))"
    "$python" -m venv --clear .venv ||
        fail "could not create .venv; on Debian and Ubuntu, install python3-venv"
fi

wanted="$(cksum <pyproject.toml) $PWD"
if [[ $(cat .venv/installed 2>/dev/null) != "$wanted" ]]; then
    say "Installing fdbqueue and its tools into .venv (repeated when pyproject.toml changes)"
    # As a plain path, which type checkers can follow.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' \
        --config-settings editable_mode=compat ||
        fail "the installation failed; run ${0} again when the package index is reachable"
    printf '%s\n' "$wanted" >.venv/installed
fi

# Without the bytecode that it keeps, Python compiles all modules again in each process.
unset PYTHONHOME PYTHONDONTWRITEBYTECODE
export VIRTUAL_ENV=$PWD/.venv PATH=$PWD/.venv/bin:$PATH
