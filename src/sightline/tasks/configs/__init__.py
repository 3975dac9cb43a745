"""The configurations of runs, one file for each task: every field is in config.json and can be set with --set."""
