"""The examples that stand at the end of each command's ``--help``."""

from __future__ import annotations

EXAMPLES = {
    "list": ("idx list",),
    "build": (
        "idx build sample --bm25 --encoder minilm",
        "idx build passages.jsonl.gz --name mine",
        "idx build wiki2018 --encoder contriever --index ivfpq --dry-run",
    ),
    "check": ("idx check sample", "idx check wiki2018 --recall --queries questions.txt"),
    "remove": ("idx remove sample --index minilm-ivfpq",),
    "search": (
        'idx search sample "Which metal is liquid at room temperature?" -k 3',
        'idx search sample "longest river of Africa" "country where the Nile ends" --retriever bm25+minilm',
        'idx search sample "chemical symbol Au" --url http://127.0.0.1:8000',
    ),
    "serve": ("idx serve sample --retriever bm25 --retriever bm25+minilm", "idx serve wiki2018 --retriever contriever --port 8001"),
    "ask": (
        "idx ask",
        "idx ask ra_isf",
        'idx ask rag "Which element was found by a Hamburg alchemist?" --corpus sample --dry-run',
        'idx ask rag "Which element was found by a Hamburg alchemist?" --corpus sample --llm openai:qwen@http://127.0.0.1:8001/v1',
    ),
    "run": (
        "idx run rag --questions sample --corpus sample --llm openai:qwen@http://127.0.0.1:8001/v1 --out runs/rag",
        "idx run refeed --questions nq-test.jsonl --protocol refeed-nq --corpus wiki2018 --llm openai:gpt-4.1 --out runs/refeed",
    ),
    "train-data": (
        "idx train-data ra_isf",
        "idx train-data ra_isf --questions nq-train.jsonl --against nq-test.jsonl --corpus wiki2018 --llm openai:gpt-4.1 --out ra-isf",
    ),
    "mcp": ("idx mcp sample --retriever bm25",),
    "import lucene": ("idx import lucene lucene-index.wikipedia-dpr-100w --corpus wiki2018",),
    "import embeddings": ("idx import embeddings wikipedia_embeddings.tar --corpus wiki2018 --encoder contriever --verify 100",),
    "eval answers": (
        "idx eval answers runs/rag",
        "idx eval answers predictions.jsonl --questions nq-test.jsonl --metrics squad_em,squad_f1",
    ),
    "eval retrieval": ("idx eval retrieval --corpus sample --questions sample --retriever bm25 --retriever bm25+minilm",),
    "eval compare": ("idx eval compare runs/direct runs/rag --html compare.html",),
}


def examples_of(command: str) -> str:
    """Return a command's examples, one a line, as they end its help."""
    return "\n".join(("\b", "Examples:", *(f"  {example}" for example in EXAMPLES[command])))
