"""Files of the state directory: locks, checkpoints, marks, offsets."""
