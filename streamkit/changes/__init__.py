"""What changes between two versions of an application, and what each change does to its state."""
