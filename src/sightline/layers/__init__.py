"""Encoders and decoders made of attention: what models are put together from."""
