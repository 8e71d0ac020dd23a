"""The configuration: text in, typed values out (floor 0, pure). Specification: configuration page.

>>> config = parse('[mcp.demo]\\ncommand = ["python", "-m", "treadle.demo_server"]\\n', "treadle.toml")
>>> config.servers[0].command
('python', '-m', 'treadle.demo_server')
"""

from treadle.config.model import BrokerConfig, Config, Limits, Refused, ServerConfig
from treadle.config.parse import parse
from treadle.paths import default_config_paths, default_socket_path, default_state_dir

__all__ = [
    "BrokerConfig",
    "Config",
    "Limits",
    "Refused",
    "ServerConfig",
    "default_config_paths",
    "default_socket_path",
    "default_state_dir",
    "parse",
]
