"""The kinds of joins, and the steps that choose one of them."""
