#!/usr/bin/env bash
# A throw-away PostgreSQL for tests.
#
#   .ci/postgres.sh COMMAND [ARGUMENT…]   runs COMMAND with PARLEY_TEST_POSTGRES_URL set
#   source .ci/postgres.sh                sets it in this shell
#
# The server listens on loopback alone, on a free port, with a random password, and keeps its data
# in a temporary directory. It is stopped when the shell exits: by the step this file adds to the
# array `cleanup`, where the sourcing script has one for its own EXIT trap, else by a trap.
# Where no server can be had this says why, and goes on: the tests that need one are skipped with
# the reason. A PARLEY_TEST_POSTGRES_URL that is already set is used as it is.

postgres_say() { echo "postgres.sh: $*" >&2; }

postgres_find() {
    # The newest installed version; Debian keeps initdb out of PATH.
    for initdb in $(ls -1d /usr/lib/postgresql/*/bin/initdb 2>/dev/null | sort -t/ -k5,5nr) \
        "$(command -v initdb 2>/dev/null || true)"; do
        if [ -n "$initdb" ] && [ -x "$initdb" ]; then
            dirname "$initdb"
            return 0
        fi
    done
    return 1
}

postgres_install() {
    command -v apt-get >/dev/null 2>&1 || { postgres_say "no PostgreSQL here, and no apt-get to get it"; return 1; }
    [ "$(id -u)" -eq 0 ] || { postgres_say "no PostgreSQL here, and only root may install it"; return 1; }
    postgres_say "installing Debian's postgresql"
    { DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends postgresql ||
        { apt-get update -q && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -q --no-install-recommends postgresql; }; } >&2 ||
        { postgres_say "apt-get could not install postgresql"; return 1; }
}

postgres_as_owner() {
    # PostgreSQL refuses to run as root.
    if [ "$(id -u)" -eq 0 ]; then
        (cd / && runuser -u postgres -- "$@")
    else
        "$@"
    fi
}

postgres_free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

postgres_start() {
    postgres_bin=$(postgres_find) ||
        { postgres_install && postgres_bin=$(postgres_find); } || return 1
    postgres_home=$(mktemp -d "${TMPDIR:-/tmp}/parley-postgres.XXXXXX") || return 1
    # Only this file carries the password to initdb, and only the owner may read it.
    postgres_password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    (umask 077 && printf '%s\n' "$postgres_password" >"$postgres_home/password")
    if [ "$(id -u)" -eq 0 ]; then
        chown -R postgres: "$postgres_home" || return 1
    fi
    postgres_as_owner "$postgres_bin/initdb" --pgdata="$postgres_home/data" --username=parley \
        --pwfile="$postgres_home/password" --auth=scram-sha-256 --encoding=UTF8 --locale=C \
        --no-sync >"$postgres_home.log" 2>&1 ||
        { postgres_say "initdb failed: $(tail -n 1 "$postgres_home.log")"; return 1; }
    for attempt in 1 2 3; do
        postgres_port=$(postgres_free_port) || return 1
        if postgres_as_owner "$postgres_bin/pg_ctl" --pgdata="$postgres_home/data" --wait \
            --log="$postgres_home/log" --silent start --options="-c listen_addresses=127.0.0.1 \
            -c port=$postgres_port -c unix_socket_directories='' -c fsync=off" </dev/null >&2; then
            postgres_running=yes
            PARLEY_TEST_POSTGRES_URL="postgresql://parley:$postgres_password@127.0.0.1:$postgres_port/postgres"
            export PARLEY_TEST_POSTGRES_URL
            postgres_say "PostgreSQL $("$postgres_bin/postgres" --version | awk '{print $3}') on port $postgres_port"
            return 0
        fi
        postgres_say "start $attempt failed: $(tail -n 1 "$postgres_home/log" 2>/dev/null)"
    done
    return 1
}

postgres_stop() {
    if [ -n "${postgres_running:-}" ]; then
        postgres_as_owner "$postgres_bin/pg_ctl" --pgdata="$postgres_home/data" --mode=immediate \
            --wait --silent stop >&2 || postgres_say "could not stop the server in $postgres_home"
        postgres_running=
        unset PARLEY_TEST_POSTGRES_URL
    fi
    if [ -n "${postgres_home:-}" ]; then
        rm -rf "$postgres_home" "$postgres_home.log"
        postgres_home=
    fi
}

if [ -n "${PARLEY_TEST_POSTGRES_URL:-}" ]; then
    postgres_say "using the PostgreSQL of PARLEY_TEST_POSTGRES_URL"
else
    # Arranged before the start, so that an interrupt in the middle of it leaves nothing behind.
    if declare -p cleanup >/dev/null 2>&1; then
        cleanup+=("postgres_stop")
    else
        trap postgres_stop EXIT
    fi
    postgres_start || { postgres_stop && postgres_say "going on without PostgreSQL"; }
fi

if [ "${BASH_SOURCE[0]}" = "$0" ] && [ $# -gt 0 ]; then
    "$@"
fi
