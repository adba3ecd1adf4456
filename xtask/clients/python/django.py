"""Django: the migrations of its own applications forth and back, the ORM, bulk_create, windows, iterator, locks, inspectdb."""
import io
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
from django.db.models import Count, F, Window
from django.db.models.functions import RowNumber

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
    User.objects.bulk_create(User(username=f"u{i}") for i in range(100))
assert User.objects.filter(username__startswith="u").update(is_staff=True) == 100
assert User.objects.filter(is_staff=True).order_by("-username")[5:7].count() == 2
ranked = User.objects.annotate(place=Window(RowNumber(), order_by=F("username").desc())).filter(place__lte=2)
assert [u.username for u in ranked] == ["u99", "u98"]
assert sum(1 for _ in User.objects.iterator(chunk_size=10)) == 101
written = io.StringIO()
call_command("inspectdb", "auth_user", "auth_user_groups", stdout=written)
assert "unique_together = (('user', 'group'),)" in written.getvalue(), written.getvalue()
User.objects.all().delete()
call_command("migrate", "auth", "zero", verbosity=0)
