"""python -m memup_cli"""

from .app import main

main()
