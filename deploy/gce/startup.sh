#!/usr/bin/env bash
# The machine's startup script, run as root at every boot: from its metadata it writes the unit, the unit's
# script and the settings, and starts the unit. The metadata hold no secret.
set -euo pipefail

: "${GCE_METADATA_HOST:=metadata.google.internal}"
: "${ROOT:=}" # tests install elsewhere

# install_from KEY MODE FILE
install_from() {
  local new="$ROOT$3.new"
  mkdir -p "$(dirname "$ROOT$3")"
  curl --silent --show-error --fail --retry 5 --retry-connrefused --max-time 30 \
    --header "Metadata-Flavor: Google" --output "$new" \
    "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/attributes/$1"
  chmod "$2" "$new"
  mv "$new" "$ROOT$3"
}

install_from structured-server-prepare 0755 /usr/local/lib/structured-server/prepare.sh
install_from structured-server-machine 0644 /etc/structured-server/machine.env
install_from structured-server-container 0644 /etc/structured-server/container.env
install_from structured-server-unit 0644 /etc/systemd/system/structured-server.service
systemctl daemon-reload
systemctl restart --no-block structured-server.service
