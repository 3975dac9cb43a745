"""The four tokens that every vocabulary begins with. Data and models meet here and know nothing else of each other."""

PADDING, UNKNOWN, START, END = range(4)
SPELLINGS = ("<pad>", "<unk>", "<s>", "</s>")  # how files and pictures write them, in the order of their ids
