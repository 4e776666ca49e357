"""Types of packages that have none of their own; only type checkers read them."""
