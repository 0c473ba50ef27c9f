"""What each step makes of a record: the visits of nodes, on tasks with traced programs."""
