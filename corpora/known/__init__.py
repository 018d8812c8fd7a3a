"""Named corpora, each with one file here and one line in ``corpora/__init__.py``.

wiki2018  wiki2020  the Wikipedias of DPR and Atlas       sample/  784 passages that ship with idx
custom    a user's own file
"""
