"""What is found, shown: the same tables as text, Markdown, JSON and a page of HTML that needs nothing else.

tables  report  the forms                  plots  the drawings
answers_report  one run                    comparison_report  several    retrieval_report  rankings
"""
