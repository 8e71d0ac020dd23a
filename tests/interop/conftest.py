"""Interoperability tests share the daemon fixture of the integration tests."""

from integration.conftest import serve

__all__ = ["serve"]
