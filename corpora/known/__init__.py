"""Known corpora, each with one file here and one line in ``corpora/__init__.py``, and corpora that users provide.

wiki2018  the Wikipedia of DPR      sample/  784 passages that ship with idx
wiki2020  the Wikipedia of Atlas    custom   the corpus in a user's own file
python_values  passages given as Python values
"""
