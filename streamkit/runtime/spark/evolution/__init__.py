"""Adds stores with their past to a running application (`streamkit evolve`)."""
