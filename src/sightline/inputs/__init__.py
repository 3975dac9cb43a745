"""What comes into a task: text, words, images, grids. One file for each kind of input."""
