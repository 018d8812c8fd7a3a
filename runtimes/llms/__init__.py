"""Language models: one batched interface and several backends, opened by name.

base                 prompts, calls, results, capabilities, the ``LLM`` protocol
openai_http          any OpenAI-compatible endpoint: openai_bodies, its requests; openai_connection, HTTP with retries
checkpoint           prompts as token ids, for the two engines that run in this process:
transformers_engine  local checkpoints, exact scores (``hf``): transformers_decoding, its forward passes
vllm_engine          vLLM
scripted             answers from a list, a file or a function
fitting              prompts cut to a model's context         cache                replies kept on disk
text                 yes/no words, removal of thinking        json_shape           type checks of external JSON
options              options of backends, apart from a model's name
naming               ``[ROLE=]BACKEND:MODEL[@URL]`` -> LLMs by role
"""
