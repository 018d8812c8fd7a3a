"""Reports of evaluations as text, Markdown, JSON, or a self-contained HTML page.

report             a report and its formats
tables             tables and formats of their cells
plots              plots in reports
answers_report     the report on one run
comparison_report  the report on several runs
retrieval_report   the report on retrievers
"""
