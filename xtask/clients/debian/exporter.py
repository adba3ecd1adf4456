"""postgres_exporter: no scrape fails, and each family of metrics that PostgreSQL 15 has is there."""
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request


def families(server):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    environment = {**os.environ, "DATA_SOURCE_NAME": f"postgresql://canon@127.0.0.1:{server}/canon?sslmode=disable"}
    program = ["/usr/bin/prometheus-postgres-exporter", f"--web.listen-address=127.0.0.1:{port}"]
    with open(f"log.{server}", "w") as log:
        exporter = subprocess.Popen(program, env=environment, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 30
        while True:
            try:
                text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
                break
            except urllib.error.URLError:
                assert exporter.poll() is None and time.monotonic() < end, open(f"log.{server}").read()
                time.sleep(0.1)
    finally:
        exporter.kill()
        exporter.wait()
    lines = [line for line in text.splitlines() if line.startswith("pg_")]
    values = {line.split("{")[0].split(" ")[0] for line in lines}
    assert "pg_up 1" in lines, text[-2000:]
    return values, [line for line in lines if line.startswith("pg_exporter") and "error" in line and not line.endswith(" 0")]


postgres, _ = families(sys.argv[2])
canon, errors = families(sys.argv[1])
log = open(f"log.{sys.argv[1]}").read()
missing = sorted(f for f in postgres - canon if not f.startswith("pg_settings_"))
if errors or missing:
    sys.exit(f"{log[-1500:]}\nerrors: {errors}\nmissing: {missing}")
