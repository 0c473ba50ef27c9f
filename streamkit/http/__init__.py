"""An application over HTTP: health, state, interactive queries, metrics, and the page that shows it."""
