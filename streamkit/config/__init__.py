"""Settings: Kafka Streams' names, types and defaults, and the clients' settings in librdkafka's terms.

`Config` joins what the file, an env file, the environment and `--set` say; `check` looks at one setting by itself.
"""

from streamkit.config.check import UnknownSettingError, check, topic_value
from streamkit.config.config import Config
from streamkit.config.environment import read_env_file, read_properties
from streamkit.config.settings import EMBEDDED, SETTINGS, Setting

__all__ = [
    "EMBEDDED",
    "SETTINGS",
    "Config",
    "Setting",
    "UnknownSettingError",
    "check",
    "read_env_file",
    "read_properties",
    "topic_value",
]
