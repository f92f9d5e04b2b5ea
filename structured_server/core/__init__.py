"""The method itself: values and pure functions.

Nothing in this package reads a clock, an environment variable or a random state, logs, or performs
I/O; it imports only the standard library and `structured_server.errors`.
"""
