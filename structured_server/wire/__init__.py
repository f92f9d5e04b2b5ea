"""Wire formats. Each dialect parses bytes into the same `Schema` and renders its own envelope."""
