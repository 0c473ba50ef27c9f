"""The commands between two versions of an application."""
