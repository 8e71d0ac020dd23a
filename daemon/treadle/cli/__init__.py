"""The command line (floor 7)."""
