"""What the generator hands back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Generated:
    """One module as text.

    ``module_name`` is how code imports it, ``file_name`` a plain name to write ``source`` under, and ``surface``
    what a model reads: doc text, types and one-line signatures, exactly those of ``source``.
    """

    module_name: str
    file_name: str
    source: str
    surface: str
