"""The product's models from scratch, under the name that tests and benchmarks import."""

from pivot.models.transformers.from_scratch import DEVIATION, FAMILIES, MERGE, bpe_tokenizer, make_vlm

__all__ = ["DEVIATION", "FAMILIES", "MERGE", "bpe_tokenizer", "make_vlm"]
