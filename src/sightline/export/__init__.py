"""Runs in the formats of other engines: Hugging Face, CTranslate2, ONNX."""
