"""Tests on the real vLLM server, and the server as an object for other folders."""
