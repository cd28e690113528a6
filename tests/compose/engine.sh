#!/usr/bin/env bash
# A container engine for the compose test on a bare Debian machine, without an image registry: installs what is missing,
# starts dockerd where none answers, makes a base image from Debian packages and an installed CPython.
#   engine.sh PYTHON STATE_DIR    PYTHON: an interpreter under a prefix of its own (pyenv, not Debian's)
# Prints nothing on success but progress; exit 3 with a reason where this machine cannot do it. STATE_DIR gets
# dockerd.pid (only if this started it) and cli-plugins/. Undo: kill the pid; images stay for the next time.
set -euo pipefail
python=$1
state=$2
image=servebench-base:local

no() {
  echo "compose test skipped: $*"
  exit 3
}

[ "$(id -u)" = 0 ] || no "needs root, to start a container engine"
command -v apt-get >/dev/null || no "needs Debian's apt-get, to install a container engine"
mkdir -p "$state"

missing=()
command -v dockerd >/dev/null || missing+=(docker.io)
command -v iptables >/dev/null || missing+=(iptables)
command -v debootstrap >/dev/null || missing+=(debootstrap)
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing ${missing[*]}"
  timeout 300 apt-get update -qq || no "apt-get update failed or took 5 minutes"
  DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    no "cannot install ${missing[*]}"
fi

if ! timeout 20 docker info >/dev/null 2>&1; then
  echo "starting dockerd"
  setsid dockerd >"$state/dockerd.log" 2>&1 &
  echo $! >"$state/dockerd.pid"
  for _ in $(seq 60); do
    timeout 5 docker info >/dev/null 2>&1 && break
    sleep 0.5
  done
  timeout 20 docker info >/dev/null 2>&1 || no "dockerd does not start: $(tail -1 "$state/dockerd.log")"
fi

# Debian 12 has Compose v1 only; v2 and buildx of Debian 13 need nothing but its libc.
plugins="$state/cli-plugins"
if ! DOCKER_CONFIG="$state" timeout 20 docker compose version >/dev/null 2>&1; then
  echo "fetching docker compose"
  lists="$state/apt"
  mkdir -p "$lists/lists/partial" "$plugins"
  mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -1)
  [ -n "$mirror" ] || mirror=$(awk '/^deb /{print $2; exit}' /etc/apt/sources.list)
  keys=/usr/share/keyrings/debian-archive-keyring.gpg
  echo "deb [signed-by=$keys] $mirror trixie main" >"$lists/sources.list"
  options=(-o "Dir::Etc::sourcelist=$lists/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$lists/lists"
    -o "Dir::Cache::pkgcache=$lists/pkg.bin" -o "Dir::Cache::srcpkgcache=$lists/src.bin")
  timeout 300 apt-get "${options[@]}" update -qq || no "Debian 13's package list cannot be had"
  (cd "$lists" && timeout 300 apt-get "${options[@]}" download -qq docker-compose docker-buildx) || no "no docker compose to be had"
  for package in "$lists"/*.deb; do
    dpkg-deb -x "$package" "$lists/x"
  done
  cp "$lists"/x/usr/libexec/docker/cli-plugins/* "$plugins/"
  rm -rf "$lists"
fi

if ! timeout 20 docker image inspect "$image" >/dev/null 2>&1; then
  prefix=$("$python" -c 'import sys; print(sys.base_prefix)')
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  [ "$prefix" != /usr ] || no "needs a Python of its own prefix (pyenv), $python is Debian's"
  echo "making $image with Python $version"
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  packages=ca-certificates,libssl3,libffi8,libsqlite3-0,zlib1g,libbz2-1.0,liblzma5,libreadline8,libexpat1,libuuid1,libgomp1
  timeout 900 debootstrap --variant=minbase --include=$packages bookworm "$scratch/base" >"$state/debootstrap.log" 2>&1 ||
    no "debootstrap failed or took 15 minutes: $(tail -1 "$state/debootstrap.log")"
  # TLS inside builds has to accept what it accepts on this machine.
  cp /etc/ssl/certs/ca-certificates.crt "$scratch/base/etc/ssl/certs/"
  tar -C "$prefix" --exclude=__pycache__ --exclude=test --exclude='*.a' --exclude=site-packages -cf - bin include lib share |
    tar -C "$scratch/base/usr/local" -xf -
  mkdir -p "$scratch/base/usr/local/lib/python$version/site-packages"
  cp -a "$prefix/lib/python$version"/site-packages/pip* "$scratch/base/usr/local/lib/python$version/site-packages/"
  rm -rf "$scratch"/base/var/cache/apt/archives/*.deb "$scratch"/base/var/lib/apt/lists/* "$scratch"/base/usr/share/{doc,man}/*
  chroot "$scratch/base" /sbin/ldconfig
  tar -C "$scratch/base" -c . | docker import \
    -c 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8' -c 'CMD ["python3"]' - "$image" >/dev/null
fi
