"""What every verb can be told: where the daemon is, and how much to say."""

from __future__ import annotations


class Options:
    """``socket``: path, None for the usual one; ``as_json``; ``quiet``: errors alone; ``verbose``: details."""

    __slots__ = ("as_json", "quiet", "socket", "verbose")

    def __init__(
        self,
        *,
        socket: str | None = None,
        as_json: bool = False,
        quiet: bool = False,
        verbose: bool = False,
    ) -> None:
        self.socket = socket
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"
