"""The execution core: tasks, queues, punctuation, handlers of failures."""
