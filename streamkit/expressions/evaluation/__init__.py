"""What translated expressions call at run time, and what limits them."""
