"""Traces and metrics of a running application for OpenTelemetry."""
