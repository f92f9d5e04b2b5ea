"""Deploys to Cloud Run with one GPU: `python -m deploy.cloudrun --help`."""
