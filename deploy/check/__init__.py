"""Checks of deployment files that no ready-made checker does."""
