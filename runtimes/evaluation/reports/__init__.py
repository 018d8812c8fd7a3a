"""Reports of evaluations, as text, Markdown, JSON and one self-contained HTML page.

tables  report  the formats                plots  the plots
answers_report  one run                    comparison_report  several    retrieval_report  rankings
"""
