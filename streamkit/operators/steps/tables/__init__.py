"""Steps that make, end or suppress tables."""
