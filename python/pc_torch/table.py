"""The table of ATen ops. Its rules are in ops_views.py, ops_math.py, ops_layers.py and choices.py. Operands are `Tensor`s or constants."""

from pc_program.table import Table

TABLE = Table("aten.")
RULES, ROWS, row, op = TABLE.rules, TABLE.rows, TABLE.row, TABLE.op
