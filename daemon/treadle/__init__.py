"""Treadle: a long-lived broker daemon for MCP servers."""

__version__ = "0.1.0"
