"""A plugin of pytest: writes what each test did to the file that OUTCOMES names, a line of JSON each."""
import json
import os
import re

out = open(os.environ["OUTCOMES"], "a", buffering=1)
worst = {}


def name(report):
    # SQLAlchemy's have the version of the server.
    return re.sub(r"_postgresql\+psycopg2_[0-9_]+", "", report.nodeid)


def why(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    # Without the crash, a traceback: its last line says most.
    return (lines[0] if crash else lines[-1])[:300]


def pytest_runtest_logreport(report):
    if report.failed:
        worst[report.nodeid] = ("failed", f"{report.when}: {why(report)}")
    elif report.skipped and report.nodeid not in worst:
        worst[report.nodeid] = ("skipped", "")
    if report.when == "teardown":
        outcome, reason = worst.pop(report.nodeid, ("passed", ""))
        out.write(json.dumps({"test": name(report), "outcome": outcome, "why": reason}) + "\n")


def pytest_collectreport(report):
    if report.failed:
        out.write(json.dumps({"test": name(report), "outcome": "failed", "why": why(report)}) + "\n")
