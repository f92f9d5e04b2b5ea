"""Deployment to one machine of Compute Engine with GPUs."""
