"""Language models: one batched interface, several backends, and how a name becomes one.

base                 prompts, calls, results, capabilities, the ``LLM`` protocol
openai_http          any OpenAI-compatible endpoint: openai_bodies, what is sent there; openai_connection, how
checkpoint           prompts as token ids, for the two engines in this process:
transformers_engine  local checkpoints, exact scores (``hf``): transformers_decoding, its forward passes
vllm_engine          vLLM
scripted             answers from a list, a file or a function
fitting              prompts cut to a model's context         cache                replies kept on disk
text                 yes/no words, and thinking cut off       json_shape           whether JSON has the types that readers count on
options              of backends, beside a model's name
naming               ``[ROLE=]BACKEND:MODEL[@URL]`` -> LLMs by role
"""
