"""The changes between two versions of an application, and the effect of each on its state."""
