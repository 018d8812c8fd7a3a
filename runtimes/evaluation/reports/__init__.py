"""Reports of evaluations as text, Markdown, JSON, or a self-contained HTML page.

report             a report and its formats
tables             tables and formats of their cells
drawings           plots as data
plots              plots in reports, by matplotlib
run_tables         tables on one run or several
search_tables      tables and plots of the searches of runs
answers_report     the report on one run
comparison_report  the report on several runs
folder_report      the report on the runs of a folder
retrieval_report   the report on retrievers
"""
