"""Tokens of Google Cloud for the client: identity tokens for Cloud Run, access tokens for Vertex AI."""

from structured_server.google_auth.auth import AccessTokenAuth, IdentityAuth
from structured_server.google_auth.errors import AuthError
from structured_server.google_auth.vertex import vertex_route

__all__ = ["AccessTokenAuth", "AuthError", "IdentityAuth", "vertex_route"]
