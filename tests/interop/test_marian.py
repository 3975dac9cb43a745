"""Our Transformer with the weights of a Hugging Face Marian model (random ones) gives the same logits."""

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from sightline.models.text_to_text import END, PADDING, START
from sightline.models.transformer import TransformerConfig

WORDS = 40


def marian(activation):
    torch.manual_seed(1)
    config = MarianConfig(
        vocab_size=WORDS,
        d_model=16,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        activation_function=activation,
        scale_embedding=True,
        max_position_embeddings=64,
        pad_token_id=PADDING,
        eos_token_id=END,
        decoder_start_token_id=START,
        dropout=0.0,
    )
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.normal_(std=0.3)  # biases and norms too, so that each one counts
        model.final_logits_bias.normal_()
    return model


def copy_weights(theirs, ours):
    """Layer by layer, by name."""

    def copy(to, source):
        with torch.no_grad():
            to.weight.copy_(source.weight)
            to.bias.copy_(source.bias)

    def copy_attention(to, source):
        for one, other in (
            (to.project_query, source.q_proj),
            (to.project_keys, source.k_proj),
            (to.project_values, source.v_proj),
            (to.output, source.out_proj),
        ):
            copy(one, other)

    with torch.no_grad():
        ours.target_embedding.weight.copy_(theirs.model.shared.weight)
        ours.output.bias.copy_(theirs.final_logits_bias[0])
    for to, source in (
        *zip(ours.encoder, theirs.model.encoder.layers, strict=True),
        *zip(ours.decoder, theirs.model.decoder.layers, strict=True),
    ):
        copy_attention(to.attention, source.self_attn)
        copy(to.around_attention.normalise, source.self_attn_layer_norm)
        copy(to.feed_forward.widen, source.fc1)
        copy(to.feed_forward.narrow, source.fc2)
        copy(to.around_feed_forward.normalise, source.final_layer_norm)
        if hasattr(to, "cross"):
            copy_attention(to.cross, source.encoder_attn)
            copy(to.around_cross.normalise, source.encoder_attn_layer_norm)


@pytest.mark.parametrize(("ours_name", "theirs_name"), [("relu", "relu"), ("gelu", "gelu"), ("silu", "swish")])
def test_the_same_logits(ours_name, theirs_name):
    theirs = marian(theirs_name)
    config = TransformerConfig(16, 4, 32, 2, 3, 0.0, norm="post", activation=ours_name)
    ours = config.build(WORDS, WORDS).eval()
    copy_weights(theirs, ours)
    source = torch.randint(4, WORDS, (3, 9))
    source[0, 4:] = PADDING
    source[2, 7:] = PADDING
    words = torch.cat([torch.full((3, 1), START), torch.randint(4, WORDS, (3, 6))], dim=1)
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=(source != PADDING).long(), decoder_input_ids=words).logits
        found = ours.logits(source, words)
    assert (found - expected).abs().max().item() < 1e-5
    assert expected.std() > 0.5, "the comparison says something"
