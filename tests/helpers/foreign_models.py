"""Small models that others wrote, with random weights large enough that attention is not even."""

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = 50
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}


def _causal_special():
    return {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


CONFIGS = {
    "bert": lambda: (transformers.BertModel, transformers.BertConfig(vocab_size=WORDS, **SIZES)),
    "gpt2": lambda: (
        transformers.GPT2LMHeadModel,
        transformers.GPT2Config(vocab_size=WORDS, n_embd=16, n_layer=2, n_head=4, n_positions=64, **_causal_special()),
    ),
    # Two heads share one set of keys.
    "llama": lambda: (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(vocab_size=WORDS, num_key_value_heads=2, **SIZES, **_causal_special()),
    ),
    "t5": lambda: (
        transformers.T5ForConditionalGeneration,
        transformers.T5Config(
            vocab_size=WORDS, d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4, decoder_start_token_id=0
        ),
    ),
    "marian": lambda: (
        transformers.MarianMTModel,
        transformers.MarianConfig(
            vocab_size=WORDS,
            d_model=16,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_position_embeddings=64,
            pad_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=1,
        ),
    ),
    "vit": lambda: (transformers.ViTModel, transformers.ViTConfig(image_size=16, patch_size=4, **SIZES)),
}


def build(name, attention="sdpa"):
    """A model by its name, the same weights for every kind of attention."""
    kind, config = CONFIGS[name]()
    torch.manual_seed(3)
    model = kind._from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():
        for name_of, parameter in model.named_parameters():
            norm = parameter.dim() == 1 and name_of.endswith("weight")
            parameter.normal_(mean=1.0 if norm else 0.0, std=0.4)
    return model


def inputs(name, padded=False):
    """What the model takes: two examples, the second of them shorter if ``padded``."""
    if name == "vit":
        return {"pixel_values": torch.randn(2, 3, 16, 16)}
    tokens = torch.randint(3, WORDS, (2, 11))
    found = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if padded:
        found["attention_mask"][1, 7:] = 0
    if name in ("t5", "marian"):
        found["decoder_input_ids"] = torch.randint(3, WORDS, (2, 6))
    return found


def attentions(output):
    """The weights that a model gives by itself, in the order in which its layers run."""
    if "decoder_attentions" not in output:
        return list(output.attentions)
    pairs = zip(output.decoder_attentions, output.cross_attentions, strict=True)
    return [*output.encoder_attentions, *(weights for pair in pairs for weights in pair)]


TEXTS = ["the unhappy cat sat on the mat", "a dog ran to the cat", "the cat, a dog and the mat"]


def word_pieces():
    """As BERT's: [CLS] in front, [SEP] behind, pieces that go on with ##. Cut and padded as some folders say."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##happy", "."]
    words += sorted({word for text in TEXTS for word in text.replace(",", "").split()} - {"unhappy"})
    made = Tokenizer(models.WordPiece({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(words[:5])
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.enable_truncation(4)
    made.enable_padding(length=16)
    return made


def byte_pieces():
    """As GPT-2's: pieces of bytes, a blank before a word is a part of it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=290, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet)
    )
    return made


def sentence_pieces():
    """As T5's: ▁ where a word begins, </s> behind a text."""
    letters = [(letter, -6.0) for letter in "▁abcdefghijklmnopqrstuvwxyz"]
    words = [(f"▁{word}", -2.0) for word in ("the", "cat", "sat", "on", "mat", "un")] + [("happy", -2.0)]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *words, *letters]
    made = Tokenizer(models.Unigram(pieces, unk_id=2))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made.add_special_tokens(["<pad>", "</s>", "<unk>"])
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return made


def _configs():
    # Every token that a model can write has a name.
    words, bytes_, letters = (one().get_vocab_size() for one in (word_pieces, byte_pieces, sentence_pieces))
    seq2seq = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    gpt2 = {"vocab_size": bytes_, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64}
    t5 = {"vocab_size": letters, "d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    marian = {"vocab_size": letters, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 32}
    marian |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 64}
    bert = transformers.BertConfig(vocab_size=words, max_position_embeddings=64, **SIZES)
    labelled = transformers.BertConfig(vocab_size=words, id2label={0: "sad", 1: "merry"}, **SIZES)
    gpt2 = transformers.GPT2Config(**gpt2, bos_token_id=0, eos_token_id=0)
    return {
        "vector": (transformers.BertModel, bert, word_pieces),
        "masked": (transformers.BertForMaskedLM, bert, word_pieces),
        "label": (transformers.BertForSequenceClassification, labelled, word_pieces),
        "next": (transformers.GPT2LMHeadModel, gpt2, byte_pieces),
        "written": (transformers.T5ForConditionalGeneration, transformers.T5Config(**t5, **seq2seq), sentence_pieces),
        "marian": (transformers.MarianMTModel, transformers.MarianConfig(**marian, **seq2seq), sentence_pieces),
        "sink": (transformers.GptOssForCausalLM, _gpt_oss(bytes_), byte_pieces),
    }


def _gpt_oss(words):
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    sizes = {"num_key_value_heads": 2, "head_dim": 4, "num_local_experts": 2, "num_experts_per_tok": 1}
    return transformers.GptOssConfig(vocab_size=words, max_position_embeddings=64, **SIZES, **sizes, **special)


def save_folder(path, kind):
    """A folder as Hugging Face has them, with random weights."""
    owner, config, tokeniser = _configs()[kind]
    torch.manual_seed(4)
    model = owner(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                norm = parameter.dim() == 1 and name.endswith("weight")
                parameter.normal_(mean=1.0 if norm else 0.0, std=0.4)
    model.save_pretrained(path)
    tokeniser().save(str(path / "tokenizer.json"))
    return path
