"""The stages of a job, and what runs them in order."""
