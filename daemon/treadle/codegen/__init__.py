"""From a `tools/list` listing to typed source text (floor 1, pure)."""
