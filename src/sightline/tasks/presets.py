"""Sizes and learning rates of the text models that several tasks declare. Nothing here imports torch."""

ATTENTIVE = {
    "tiny": {},
    "small": {"embedding_size": 200, "size": 256},
    "base": {"embedding_size": 300, "size": 512, "layers": 2},
}
# The same layers as the translation Transformer: its encoder can start from these weights.
ENCODER = {
    "tiny": {},
    "small": {"size": 256, "heads": 4, "feed_forward": 1024, "layers": 4},
    "base": {"size": 512, "heads": 8, "feed_forward": 2048, "layers": 6},
}
# One layer has the weights of one layer of the encoder, however often it is repeated.
UNIVERSAL: dict[str, dict[str, object]] = {
    "tiny": {},
    "small": {"size": 256, "heads": 4, "feed_forward": 1024, "thinking": {"kind": "act", "most": 8}},
    "base": {"size": 512, "heads": 8, "feed_forward": 2048, "thinking": {"kind": "act", "most": 10}},
}
HAN: dict[str, dict[str, int]] = {"tiny": {}, "small": {}, "base": {}}
NB_SVM = HAN  # its size is that of the data
RATES = {"tiny": 1e-3, "small": 7e-4, "base": 4e-4}
LOUD = 1.0  # standard deviation of word vectors where single words decide, not the sum of many
# A text has many masked words in pre-training and one label elsewhere: learning rates may be larger, and many small
# batches learn faster.
READING_RATES = {"tiny": 3e-3, "small": 1.5e-3, "base": 5e-4}
READING_TOKENS = {"tiny": 2048, "small": 4096, "base": 8192}
