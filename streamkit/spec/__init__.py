"""Topology files: `load` and `load_text` give a TopologyModel, or a TopologyError with every problem."""

from streamkit.spec.load import decode, load, load_text
from streamkit.spec.model import ConfigEntry, Defaults, PipelineSpec, StoreSpec, TopicSpec, TopologyModel

__all__ = [
    "ConfigEntry",
    "Defaults",
    "PipelineSpec",
    "StoreSpec",
    "TopicSpec",
    "TopologyModel",
    "decode",
    "load",
    "load_text",
]
