"""Deploys to one virtual machine of Compute Engine with GPUs: `python -m deploy.gce --help`."""
