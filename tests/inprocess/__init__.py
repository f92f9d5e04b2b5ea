"""Tests of the transformers backend that need neither torch nor a model; those that do are in `real`."""
