"""Language models: one batched interface and several backends, opened by name.

prompts                prompts, decoding parameters, constraints
base                   calls, results, capabilities, the ``LLM`` protocol
openai_model           backend ``openai``: any OpenAI-compatible endpoint
openai_requests        request bodies for endpoints
openai_answers         parsing of endpoints' answers
openai_refusals        what a refusal means, and what later requests do without
openai_logprobs        log-probabilities in answers of endpoints
dialects               fields of servers beyond OpenAI's standard, recognition of servers
served_tokens          token counts by a server's tokenizer, else estimated
openai_connection      HTTP requests to endpoints, with retries
streams                answers that come in parts, put together
replicas               several endpoints of one model
checkpoint             models with a tokenizer in this process
transformers_engine    backend ``hf``: local checkpoints in transformers
transformers_decoding  forward passes of backend ``hf``, over padded batches
encoder_decoder        those of encoder-decoders, such as T5
scoring                encoders and classifiers, which score texts
mixing                 means of next-token distributions that endpoints tell
growing_cache          keys and values in memory with room for the tokens to come
embedded               models in Python packages, by name
gguf_files             GGUF files, converted once for transformers
served                 models behind servers that idx starts
vllm_server            backend ``vllm``: checkpoints in ``vllm serve``
llamacpp_server        backend ``llamacpp``: GGUF files in llama.cpp
plugged                backends of the user's own code
scripted               backend ``scripted``: answers from a list, a file or a function
fitting                prompts cut to a model's context
turns                  conversations for restrictive chat templates, or as one text
repetition             texts that repeat themselves until the token limit
cache                  replies stored on disk
text                   words of yes/no answers, stop texts
thinking               thoughts in texts, tokens for them
json_shape             type checks of external JSON
options                options of backends
naming                 ``[ROLE=]BACKEND:MODEL[@URL]`` -> LLMs by role
"""
