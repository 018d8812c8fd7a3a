"""Text encoders: one file of published settings per family, and one tokenizer and forward pass for all.

contriever  dpr  gtr  simlm  minilm   the families, each with its sizes and variants as ``EncoderSpec``
popular      others in wide use, by the table popular.toml
none           vectors without an encoder
spec         EncoderSpec, Tokens               anywhere      any checkpoint -> its recipe
recipes      options of recipes, and recipes under names
served       vectors that a server computes    tokenizing    texts -> token ids
model        token ids -> vectors              transformer   tokenizer and model as one Encoder
"""
