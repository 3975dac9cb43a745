"""Search for sequences, and its options."""
