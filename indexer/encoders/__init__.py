"""Text encoders: a table of published settings, and one tokenizer and forward pass for all.

families     the encoders that have names: E5, Contriever, DPR and others, whose settings are in encoders.toml
spec         EncoderSpec, Tokens               anywhere      any checkpoint -> its recipe
recipes      options of recipes, and recipes under names
served       vectors that a server computes    tokenizing    texts -> token ids
plugged      vectors by the user's own code
model        token ids -> vectors              transformer   tokenizer and model as one Encoder
"""
