"""Renders a page in a browser, if there is one."""
import os
import shutil
import subprocess


def drawn(page, width=800):
    """The page's elements after its scripts have run in a window of `width`, or None without a browser."""
    browser = shutil.which("chromium")
    if not browser:
        return None
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + page + ".profile",
               f"--window-size={width},900", "--enable-logging=stderr", "--dump-dom", "file://" + os.path.abspath(page)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "CONSOLE" not in run.stderr, run.stderr  # what scripts complain about
    return run.stdout
