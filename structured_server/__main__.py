"""`python -m structured_server`."""

from structured_server.cli.main import main

main()
