"""What a model attended to, as plain data, and the evidence for and against it."""
