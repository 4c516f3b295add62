"""Pages of the documentation that a test makes anew."""
import sys


def main(page):
    """Arguments: DIRECTORY-OF-TOOLS FILE [--write]. FILE must be `page` of the tools; --write makes it so."""
    text = page(sys.argv[1])
    if "--write" in sys.argv:
        open(sys.argv[2], "w").write(text)
    same = open(sys.argv[2]).read() == text
    if not same:
        print("FAIL  the committed page differs; --write makes it anew")
    print(f"{int(same)} passed, {int(not same)} failed")
    sys.exit(not same)
