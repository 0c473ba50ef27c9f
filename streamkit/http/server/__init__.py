"""The HTTP server: connections, limits, a thread of its own."""
