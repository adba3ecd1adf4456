"""Django: the migrations of its own applications, the ORM, transactions, select_for_update."""
import sys

import django
from django.conf import settings

PLACE = {"ENGINE": "django.db.backends.postgresql", "NAME": "canon", "USER": "canon", "HOST": "127.0.0.1", "PORT": sys.argv[1]}
APPLICATIONS = ["admin", "auth", "contenttypes", "sessions", "messages"]
settings.configure(INSTALLED_APPS=[f"django.contrib.{a}" for a in APPLICATIONS], DATABASES={"default": PLACE}, USE_TZ=True)
django.setup()

from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.db.models import Count

call_command("migrate", verbosity=0)
with transaction.atomic():
    ada = User.objects.create_user("ada", password="x")
    ada.groups.add(Group.objects.create(name="g"))
assert list(Group.objects.annotate(n=Count("user")).values_list("name", "n")) == [("g", 1)]
try:
    with transaction.atomic():
        User.objects.create_user("ada")
except IntegrityError:
    pass
with transaction.atomic():
    User.objects.select_for_update().get(username="ada")
    # Not bulk_create, which sends arrays of timestamptz.
    for i in range(100):
        User.objects.create(username=f"u{i}")
assert User.objects.filter(username__startswith="u").update(is_staff=True) == 100
assert User.objects.filter(is_staff=True).order_by("-username")[5:7].count() == 2
User.objects.all().delete()
call_command("migrate", "auth", "zero", verbosity=0)
