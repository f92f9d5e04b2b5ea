"""What System One and Decisions clients need of a server, asked through their own SDKs.

Everything here talks HTTP to a server process; nothing of the product is imported. Without further ado the
process is `structured-server serve --backend embedded`, once without keys and once with one. To hold any
other server against the same tests, one on a real vLLM for example:

    CONFORMANCE_URL=http://127.0.0.1:8000 pytest tests/conformance

| variable | what it says | default |
|---|---|---|
| `CONFORMANCE_URL` | the server's base URL, without `/v1` | a process of our own |
| `CONFORMANCE_KEY` | a key of that server; without one, it must take any | none |
| `CONFORMANCE_MODEL` | the model that requests name | `jev-latest` |
| `CONFORMANCE_TIMEOUT` | seconds for each request | 60 |
| `CONFORMANCE_EXTRAS` | JSON fields that the request with 400 questions has besides | none |

A server that sees images may answer about them; one of our own reads text only and has to refuse them.
For an engine on a CPU, 400 questions are many: give them a longer timeout and
`CONFORMANCE_EXTRAS='{"samples": 1, "deadline_ms": 600000}'`, or leave them out with `-k "not four_hundred"`.
"""
