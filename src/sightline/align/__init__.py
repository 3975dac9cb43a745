"""Word alignment by attention: where a model attends while it is forced to write a given target."""
