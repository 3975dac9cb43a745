"""The declarations of the built-in tasks, one a file. None of them imports torch."""
