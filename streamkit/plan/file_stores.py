"""The definitions of the file's own stores (org.apache.kafka.streams.state.Stores)."""

from __future__ import annotations

from streamkit.spec.topology_model import StoreSpec
from streamkit.state.definitions import StoreDef


def custom_store(spec: StoreSpec) -> StoreDef:
    """Return the definition of a store that processors use."""
    logging = spec.logging is not False
    window_size = spec.window_size
    return StoreDef(
        name=spec.name,
        type=spec.type,
        key_serde=spec.key,
        value_serde=spec.value,
        persistent=spec.persistent is not False,
        # Unlike Materialized, Stores.…StoreBuilder has caching off by default.
        caching=spec.caching is True,
        logging=logging,
        topic_config=dict(spec.config),
        retention=spec.retention,
        window_size=window_size,
        segment_interval=spec.segment_interval,
        history=spec.history,
        ttl=spec.ttl,
        changelog_topic=f"{spec.name}-changelog" if logging else None,
        options={"plain": True} if spec.type == "window" else {},
    )
