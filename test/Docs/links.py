"""usage: links.py ROOT

Follows the links of the pages of ROOT, starting at README.md. Each must lead to a file or folder, and if it names a
heading, to one of the page. Every page under docs/ and every README.md must be reached. Errors are printed, and the
exit status is 1."""
import os
import re
import sys


def text_of(page):
    """A page without what is code."""
    text = re.sub(r"^```.*?^```", "", open(page).read(), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[][()]", " ", code[0]), text)


def anchors(page):
    """What GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ +(.*?) *$", text_of(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def main(root):
    os.chdir(root)
    failed, reached, waiting = False, {"README.md"}, ["README.md"]
    while waiting:
        page = waiting.pop()
        for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(target) or target.startswith(".."):
                print(f"{page}: no such file: {link}")
                failed = True
            elif target.endswith(".md"):
                if anchor and anchor not in anchors(target):
                    print(f"{page}: no such heading: {link}")
                    failed = True
                if target not in reached:
                    reached.add(target)
                    waiting.append(target)
    for folder, folders, files in os.walk("."):
        folders[:] = [name for name in folders if not name.startswith((".", "build"))]
        for name in files:
            page = os.path.normpath(os.path.join(folder, name))
            wanted = name == "README.md" or (page.startswith("docs" + os.sep) and name.endswith(".md"))
            if wanted and page not in reached:
                print(f"{page}: no page leads here")
                failed = True
    return failed


sys.exit(main(sys.argv[1]))
