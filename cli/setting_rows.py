"""All settings with their types, defaults and meanings, as rows."""

from __future__ import annotations

from typing import TypedDict

from streamkit.config.settings import SettingValue


class SettingRow(TypedDict):
    """A setting. variable: its name in the environment."""

    name: str
    type: str
    default: SettingValue
    meaning: str
    variable: str


def setting_rows() -> list[SettingRow]:
    """Return the settings by name; deprecated names stand for present ones and aren't among them."""
    from streamkit.config import SETTINGS, Config
    from streamkit.config.environment_variables import variable

    defaults = {name: value for name, value, _ in Config("").describe()}
    return [
        {
            "name": name,
            "type": " | ".join(setting.words) if setting.words else setting.kind,
            "default": defaults[name],
            "meaning": setting.description,
            "variable": variable(name),
        }
        for name, setting in sorted(SETTINGS.items())
        if name in defaults
    ]
