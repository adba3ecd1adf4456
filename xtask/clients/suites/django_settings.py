"""Settings for Django's own tests. The database is used as it is: there is no other one to make."""
import os


def database(port):
    return {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": os.environ[port], "USER": "canon", "NAME": "canon", "TEST": {"NAME": "canon"}}


DATABASES = {"default": database("PORT"), "other": database("PORT_OF_OTHER")}
SECRET_KEY = "tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
TEST_RUNNER = "django_runner.Runner"
