"""Text encoders: one file of published settings per family, and one tokenizer and forward pass for all.

contriever  dpr  gtr  simlm  minilm   the families, each with its sizes and variants as ``EncoderSpec``
popular      others in wide use, as a table    modernbert    and those of this network
none           vectors without an encoder
spec         EncoderSpec, Tokens               checkpoints   locating the files of a checkpoint
anywhere     any checkpoint -> its recipe      recipes       options of recipes, and recipes under names
served       vectors that a server computes    pooling       vectors of tokens -> vector of the text
tokenizing   texts -> token ids                batching      texts that are encoded together
loading      checkpoint -> network, by transformers
dense        layers after the network          network_size  weights, memory and operations by the configuration
model        token ids -> vectors              transformer   tokenizer and model as one Encoder
"""
