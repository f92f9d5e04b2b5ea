"""Typed decisions with probabilities from a diffusion language model, in one denoise step."""

__version__ = "0.1.0"
