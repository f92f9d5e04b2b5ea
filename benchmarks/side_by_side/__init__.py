"""This server beside vLLM's example server, on the same fake engine and the same requests."""
