"""Tests of the transformers backend with torch and a model, against the oracle's numbers."""
