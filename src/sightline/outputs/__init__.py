"""What comes out of a task: a sequence, labels, tags, a span, cells, masked words. One file for each kind of output."""
