"""What deploys this server: images, Cloud Run, and the checks of their files."""
