"""Stores with their past, added to a running application."""
