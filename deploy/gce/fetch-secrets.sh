#!/usr/bin/env bash
# Fetches secrets from Secret Manager with the machine's own account, into $RUNTIME_DIRECTORY, which is memory.
#
# PROJECT; HF_SECRET and KEYS_SECRET, names of secrets, or empty. Nothing secret is printed or becomes an argument.
set -euo pipefail

: "${PROJECT:?}"
: "${HF_SECRET:=}"
: "${KEYS_SECRET:=}"
: "${RUNTIME_DIRECTORY:?}"
: "${METADATA_URL:=http://metadata.google.internal}"
: "${SECRETS_URL:=https://secretmanager.googleapis.com}"
: "${READER:=10001}" # the container's user, who reads the keys file

fail() {
  printf 'fetch-secrets: %s\n' "$1" >&2
  exit 1
}

# field NAME: the text of a field of the flat JSON on standard input.
field() {
  tr -d '\n' | sed -n "s/.*\"$1\" *: *\"\\([^\"]*\\)\".*/\\1/p"
}

# secret NAME: the latest version of a secret, as it is.
secret() {
  local said
  said=$(printf 'Authorization: Bearer %s\n' "$token" | curl --silent --show-error --fail --retry 3 --max-time 30 \
    --header @- "$SECRETS_URL/v1/projects/$PROJECT/secrets/$1/versions/latest:access") ||
    fail "the secret $1 cannot be read: is it there, and has the machine's account roles/secretmanager.secretAccessor on it?"
  field data <<<"$said" | tr -- '-_' '+/' | base64 --decode
}

umask 077
mkdir -p "$RUNTIME_DIRECTORY/keys"
: >"$RUNTIME_DIRECTORY/secrets.env"
if [[ -z "$HF_SECRET$KEYS_SECRET" ]]; then exit 0; fi

token=$(curl --silent --show-error --fail --retry 3 --max-time 10 --header 'Metadata-Flavor: Google' \
  "$METADATA_URL/computeMetadata/v1/instance/service-accounts/default/token" | field access_token) ||
  fail "the metadata server gives no token: has the machine a service account?"

if [[ -n "$HF_SECRET" ]]; then
  value=$(secret "$HF_SECRET")
  if [[ -z "$value" || "$value" == *$'\n'* ]]; then fail "the secret $HF_SECRET is not a token in one line"; fi
  printf 'HF_TOKEN=%s\n' "$value" >"$RUNTIME_DIRECTORY/secrets.env"
fi
if [[ -n "$KEYS_SECRET" ]]; then
  secret "$KEYS_SECRET" >"$RUNTIME_DIRECTORY/keys/keys.yaml"
  if [[ ! -s "$RUNTIME_DIRECTORY/keys/keys.yaml" ]]; then fail "the secret $KEYS_SECRET is empty"; fi
  chown -R "$READER" "$RUNTIME_DIRECTORY/keys"
fi
