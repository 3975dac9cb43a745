"""Encoders and decoders made of attention: the parts that models are built from."""
