"""Pages of the documentation that a test makes anew."""
import sys


def main(page, checks=()):
    """Arguments: DIRECTORY-OF-TOOLS FILE [--write]. FILE must be `page` of the tools; --write makes it so. `checks`: whether
    each check that `page` did itself passed."""
    text = page(sys.argv[1])
    if "--write" in sys.argv:
        open(sys.argv[2], "w").write(text)
    same = open(sys.argv[2]).read() == text
    if not same:
        print("FAIL  the committed page differs; --write makes it anew")
    results = [same, *checks]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(not all(results))
