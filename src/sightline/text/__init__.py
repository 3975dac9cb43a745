"""Tokenisers, sentences, words and where they stand in a text."""
