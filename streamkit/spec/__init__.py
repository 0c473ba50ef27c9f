"""Topology files: `load` and `load_text` return a TopologyModel, or raise a TopologyError with every problem."""

from streamkit.spec.topology_file import decode, load, load_text
from streamkit.spec.topology_model import ConfigEntry, Defaults, PipelineSpec, StoreSpec, TopicSpec, TopologyModel

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
