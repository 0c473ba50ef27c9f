"""Settings: Kafka Streams' names, types and defaults, and the clients' settings in librdkafka's terms.

`Config` joins the settings of the file, an env file, the environment and `--set`; `check` checks one setting by itself.
"""

from streamkit.config.application_config import Config
from streamkit.config.check import UnknownSettingError, check, topic_value
from streamkit.config.environment_variables import read_env_file, read_properties
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
