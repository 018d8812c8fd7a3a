"""Known corpora, each with one line in ``corpora/__init__.py``, and corpora that users provide.

wikipedias     the Wikipedias of DPR and of Atlas     sample/  784 passages that ship with idx
python_values  passages given as Python values        custom   the corpus in a user's own file
"""
