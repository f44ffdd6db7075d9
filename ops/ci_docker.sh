#!/usr/bin/env bash
# Makes a Docker Engine answer on this machine, with three base images that the stack can be built on.
#
# For CI and bare Debian machines, as root: installs Debian's engine and compose where they are missing, starts dockerd
# by hand where none answers, and where the base images cannot be pulled makes stand-ins from Debian's packages. An
# engine that answers already and images that are there are left as they are. Exits 0 when ready; otherwise says why,
# with the daemon's last lines.
#
#   ops/ci_docker.sh          make it ready
#   ops/ci_docker.sh stop     stop the daemon that this script started, if it did
set -euo pipefail

STATE=${PHOTOCALL_DOCKER_STATE:-/run/photocall-docker}
LOG=$STATE/dockerd.log
PID=$STATE/dockerd.pid
BASE_IMAGE=${PHOTOCALL_BASE_IMAGE:-python:3.11-slim-bookworm}
REDIS_IMAGE=${PHOTOCALL_REDIS_IMAGE:-redis:7.2-bookworm}
PROXY_IMAGE=${PHOTOCALL_PROXY_IMAGE:-haproxy:3.0-bookworm}
STAND_IN_BASE=photocall-stand-in/python:bookworm
STAND_IN_REDIS=photocall-stand-in/redis:bookworm
STAND_IN_PROXY=photocall-stand-in/haproxy:bookworm

say() { echo "ci_docker: $*"; }

fail() {
    {
        echo "!! ci_docker: $*"
        if [ -s "$LOG" ]; then
            echo "!! the last lines of dockerd ($LOG):"
            tail -n 25 "$LOG" | sed 's/^/!!   /'
        fi
    } >&2
    exit 1
}

started_here() { [ -s "$PID" ] && [ "$(cat "/proc/$(cat "$PID")/comm" 2>/dev/null)" = dockerd ]; }

stop() {
    started_here || { say "no daemon of ours runs"; return; }
    kill "$(cat "$PID")"
    for _ in $(seq 100); do
        started_here || { say "stopped"; return; }
        sleep 0.2
    done
    fail "dockerd does not stop"
}

answers() { timeout 20 docker version >/dev/null 2>&1; }

install_packages() {
    local missing=()
    command -v dockerd >/dev/null || missing+=(docker.io)
    command -v docker-compose >/dev/null || docker compose version >/dev/null 2>&1 || missing+=(docker-compose)
    command -v iptables >/dev/null || missing+=(iptables)
    [ ${#missing[@]} = 0 ] && return
    [ "$(id -u)" = 0 ] || fail "not root: cannot install ${missing[*]}"
    command -v apt-get >/dev/null || fail "no apt-get here: install ${missing[*]} by hand"
    say "installing ${missing[*]}"
    apt_install "${missing[@]}" || fail "apt-get could not install ${missing[*]}"
}

apt_install() {
    apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >"$STATE/apt.log" 2>&1 ||
        { tail -n 15 "$STATE/apt.log" >&2; return 1; }
}

start_daemon() {
    answers && { say "a Docker Engine answers already"; return; }
    [ "$(id -u)" = 0 ] || fail "no Docker Engine answers, and only root can start one"
    say "starting dockerd"
    pgrep -x dockerd >/dev/null || rm -f /var/run/docker.pid # left by a daemon that was killed; it would refuse to start
    setsid nohup dockerd >"$LOG" 2>&1 </dev/null &
    echo $! >"$PID"
    for _ in $(seq 150); do
        answers && return
        # not started_here: until setsid and nohup have handed over, the process has their names
        kill -0 "$(cat "$PID")" 2>/dev/null || fail "dockerd ended at once"
        sleep 0.2
    done
    fail "dockerd does not answer after 30 s"
}

# image PULLABLE STAND_IN: true when one of both can be used
have_image() {
    docker image inspect "$1" >/dev/null 2>&1 && return
    timeout 300 docker pull -q "$1" >/dev/null 2>&1 && { say "pulled $1"; return; }
    docker image inspect "$2" >/dev/null 2>&1
}

# The same minimal Debian root under three names: its Python stands in for python:*-slim, its Redis for redis:*, its
# HAProxy for haproxy:*.
make_stand_ins() {
    [ "$(id -u)" = 0 ] || fail "$BASE_IMAGE cannot be pulled, and only root can make a stand-in"
    command -v debootstrap >/dev/null || apt_install debootstrap || fail "apt-get could not install debootstrap"
    local root mirror
    root=$(mktemp -d /var/tmp/photocall-stand-in.XXXXXX)
    # shellcheck disable=SC2064  the path is to be expanded now
    trap "rm -rf '$root'" EXIT
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | head -n 1)
    say "making stand-ins for $BASE_IMAGE, $REDIS_IMAGE and $PROXY_IMAGE from Debian's packages (about two minutes)"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,redis-server,haproxy \
        bookworm "$root" ${mirror:+"$mirror"} >"$STATE/debootstrap.log" 2>&1 ||
        { tail -n 15 "$STATE/debootstrap.log" >&2; fail "debootstrap failed"; }
    # A machine behind a proxy has a certificate authority of its own; builds inside must trust it too.
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
    rm -rf "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* \
        "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/*
    rm -rf "$root/data" && install -d -m 0755 "$root/data" && chroot "$root" chown redis:redis /data
    tar -C "$root" -c . | docker import \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8' \
        --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' \
        --change 'CMD ["python3"]' - "$STAND_IN_BASE" >/dev/null || fail "docker import failed"
    docker tag "$STAND_IN_BASE" "$STAND_IN_REDIS"
    docker tag "$STAND_IN_BASE" "$STAND_IN_PROXY"
    say "made $STAND_IN_BASE, $STAND_IN_REDIS and $STAND_IN_PROXY"
}

mkdir -p "$STATE" 2>/dev/null || STATE=$(mktemp -d) LOG=$STATE/dockerd.log PID=$STATE/dockerd.pid
if [ "${1:-}" = stop ]; then
    stop
    exit
fi
install_packages
start_daemon
if ! have_image "$BASE_IMAGE" "$STAND_IN_BASE" || ! have_image "$REDIS_IMAGE" "$STAND_IN_REDIS" ||
    ! have_image "$PROXY_IMAGE" "$STAND_IN_PROXY"; then
    make_stand_ins
fi
say "ready: $(docker version --format 'Engine {{.Server.Version}}'), compose $(docker compose version --short 2>/dev/null || docker-compose version --short)"
