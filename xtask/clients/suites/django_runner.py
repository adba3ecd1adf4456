"""The runner of Django's own tests: writes what each did to the file that OUTCOMES names, a line of JSON each."""
import json
import os
import unittest
import warnings

from django.test.runner import DiscoverRunner


# A warning ends the run, and there is no database postgres to be preferred.
warnings.filterwarnings("ignore", message="Normally Django will use a connection to the 'postgres' database")


class Result(unittest.TextTestResult):
    out = None

    def say(self, test, outcome, error=None):
        Result.out = Result.out or open(os.environ["OUTCOMES"], "a", buffering=1)
        lines = str(error[1]).strip().splitlines() if error else []
        why = f"{error[0].__name__}: {lines[0] if lines else ''}"[:300] if error else ""
        Result.out.write(json.dumps({"test": test.id(), "outcome": outcome, "why": why}) + "\n")

    def addSuccess(self, test):
        super().addSuccess(test)
        self.say(test, "passed")

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.say(test, "skipped")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.say(test, "failed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say(test, "skipped")

    def addError(self, test, error):
        super().addError(test, error)
        self.say(test, "failed", error)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.say(test, "failed", error)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error:
            self.say(test, "failed", error)


class Runner(DiscoverRunner):
    def get_resultclass(self):
        return Result
