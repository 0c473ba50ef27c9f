"""What is known of an expression before any record: types, fields, and how much it can make."""
