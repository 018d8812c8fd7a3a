"""Text encoders: what their authors fixed, one family a file, over one way of tokenising and one forward pass.

contriever  dpr  gtr  simlm  minilm  e5  bge   the families, each with its sizes and variants as ``EncoderSpec``
spec         EncoderSpec, Tokens               checkpoints   where the files of a checkpoint are
tokenizing   texts -> token ids                loading       checkpoint -> network, by transformers
model        token ids -> vectors              transformer   tokenizer and model as one Encoder
"""
