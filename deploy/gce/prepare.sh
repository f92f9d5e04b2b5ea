#!/usr/bin/env bash
# What must be there before the container: a driver, the secrets as files in memory, and the image.
# Where something is missing it says what and ends with 1; systemd tries again.
#
# Tokens go from process to process by pipes and files of mode 0600 in memory, and never stand on a command line.
set -euo pipefail
shopt -s inherit_errexit
umask 077

: "${IMAGE:?}" "${PROJECT:?}"
: "${HF_SECRET:=}"   # the names of secrets; empty for none
: "${KEYS_SECRET:=}"
: "${RUNTIME_DIRECTORY:?}" "${STATE_DIRECTORY:?}" # systemd's
: "${CONTAINER_USER:=10001}"                      # the image's
: "${GCE_METADATA_HOST:=metadata.google.internal}"
: "${SECRETS_URL:=https://secretmanager.googleapis.com/v1}"

say() {
  printf '{"severity":"%s","message":"prepare: %s"}\n' "$1" "$2" >&2
}

fail() {
  say ERROR "$1"
  exit 1
}

# value NAME: the text of a member of a JSON object.
value() {
  sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p"
}

# secret NAME FILE: fetch its newest version into a file that the container's user alone may read.
secret() {
  printf 'header = "Authorization: Bearer %s"\n' "$token" |
    curl --config - --silent --show-error --fail --retry 5 --max-time 30 \
      "$SECRETS_URL/projects/$PROJECT/secrets/$1/versions/latest:access" |
    value data | base64 --decode >"$2" ||
    fail "the secret $1 cannot be read: is there one, with a version, and may this machine's account read it?"
  [[ -s "$2" ]] || fail "the secret $1 is empty"
  chown "$CONTAINER_USER" "$2"
  say INFO "the secret $1 is there"
}

# pull REGISTRY: log in with the account's token where the registry is Google's, pull, and forget the token.
pull() {
  local config="$RUNTIME_DIRECTORY/docker" status=0
  if [[ "$1" == *-docker.pkg.dev || "$1" == gcr.io || "$1" == *.gcr.io ]]; then
    printf '%s' "$token" |
      docker --config "$config" login --username oauth2accesstoken --password-stdin "https://$1" >/dev/null ||
      status=$?
  fi
  if [[ "$status" == 0 ]]; then docker --config "$config" pull --quiet "$IMAGE" >&2 || status=$?; fi
  rm -rf "$config"
  return "$status"
}

command -v docker >/dev/null || fail "there is no docker: boot a system that has it (SYSTEM=)"
nvidia-smi >/dev/null || fail "nvidia-smi fails: the driver is not installed yet, or not usable"

token=$(curl --silent --show-error --fail --retry 5 --retry-connrefused --max-time 30 \
  --header "Metadata-Flavor: Google" \
  "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/service-accounts/default/token" |
  value access_token) || token=
[[ -n "$token" ]] || fail "the metadata server gives no token for this machine's account"

# The container cannot ask for that token: the metadata server is closed to it, but for names.
rule=(DOCKER-USER --destination 169.254.169.254 --protocol tcp ! --dport 53 --jump DROP)
iptables --wait --check "${rule[@]}" 2>/dev/null || iptables --wait --insert "${rule[@]}"

secrets="$RUNTIME_DIRECTORY/secrets"
mkdir -p "$secrets" "$STATE_DIRECTORY/cache"
chown "$CONTAINER_USER" "$secrets" "$STATE_DIRECTORY/cache"
if [[ -n "$HF_SECRET" ]]; then secret "$HF_SECRET" "$secrets/hf-token"; fi
if [[ -n "$KEYS_SECRET" ]]; then secret "$KEYS_SECRET" "$secrets/keys.yaml"; fi

if ! pull "${IMAGE%%/*}"; then
  docker image inspect "$IMAGE" >/dev/null 2>&1 || fail "$IMAGE cannot be pulled"
  say WARNING "$IMAGE cannot be pulled; the one that is here is used"
fi
