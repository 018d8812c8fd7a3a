"""Networks of checkpoints: their files, their weights on a device, and their forward passes; of encoders, rerankers and language models.

checkpoints  locating the files of a checkpoint    loading      checkpoint -> network, by transformers
tokenizers   tokenizers of a checkpoint            batching     texts that are read together
pooling      vectors of tokens -> vector           dense        layers after the network
module_folders sentence-transformers' settings
network      a network on a device, and its batches
network_size weights, memory and operations by the configuration
"""
