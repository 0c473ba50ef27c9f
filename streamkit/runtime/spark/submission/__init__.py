"""From a request to a job: options, session, progress."""
