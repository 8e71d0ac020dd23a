"""``treadle completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from treadle.cli import output

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the completion script of a shell: verbs, options, servers, tools and their arguments.

    \b
    eval "$(treadle completion bash)"       in ~/.bashrc
    eval "$(treadle completion zsh)"        in ~/.zshrc
    treadle completion fish > ~/.config/fish/completions/treadle.fish
    """
    completer = get_completion_class(shell)
    assert completer is not None
    script = completer(ctx.find_root().command, {}, "treadle", "_TREADLE_COMPLETE").source()
    output.line(script.strip())
    return 0
