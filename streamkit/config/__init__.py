"""Settings: Kafka Streams' names, types and defaults, and the clients' settings in librdkafka's terms.

`Config` combines the settings of the file, an env file, the environment and `--set`; `check` checks a single setting.
"""

from streamkit.config.application_config import Config, read_env_file, read_properties
from streamkit.config.settings import EMBEDDED, SETTINGS, Setting
from streamkit.config.values import UnknownSettingError, check, topic_value

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
