"""Codecs of the MCP side: lines, JSON-RPC, MCP messages, msgpack interchange (floor 0, pure)."""
