"""Text encoders: one file of published settings per family, and one tokenizer and forward pass for all.

contriever  dpr  gtr  simlm  minilm  e5  bge   the families, each with its sizes and variants as ``EncoderSpec``
spec         EncoderSpec, Tokens               checkpoints   locating the files of a checkpoint
tokenizing   texts -> token ids                loading       checkpoint -> network, by transformers
model        token ids -> vectors              transformer   tokenizer and model as one Encoder
"""
